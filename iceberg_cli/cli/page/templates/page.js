"use strict";
for (const table of document.querySelectorAll("table.rows")) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const heads = Array.from(table.tHead.rows[0].cells);
  const values = new Map(rows.map((row) => [row, Array.from(row.cells, (cell) => {
    const text = cell.dataset.sort ?? cell.dataset.rank;
    return text === undefined ? cell.textContent.trim().toLowerCase() : text === "" ? null : Number(text);
  })]));
  const compare = (left, right) => {
    if (left === right) return 0;
    if (left === null) return 1;
    if (right === null) return -1;
    return left < right ? -1 : 1;
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const first = head.classList.contains("right") ? "descending" : "ascending";
      const other = first === "descending" ? "ascending" : "descending";
      const order = before === first ? other : first;
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "descending" ? -1 : 1;
      const sorted = rows.slice().sort((left, right) => {
        const a = values.get(left)[column];
        const b = values.get(right)[column];
        return a === null || b === null ? compare(a, b) : sign * compare(a, b);
      });
      body.append(...sorted);
    });
  });
  const form = document.getElementById(table.dataset.filters);
  if (!form) continue;
  form.hidden = false;
  const text = form.querySelector("input");
  const chosen = Array.from(form.querySelectorAll("select"));
  const output = form.querySelector("output");
  const names = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const filter = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits = words.every((word) => names.get(row).includes(word))
        && chosen.every((select) => !select.value || (row.dataset[select.name] || "").split(" ").includes(select.value));
      row.hidden = !fits;
      shown += fits;
    }
    output.value = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown`;
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}
