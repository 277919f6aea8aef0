# bash completion for iceberg-cli, written by .ci/generate.py; needs bash 4
_iceberg_cli_words() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
}

_iceberg_cli_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
}

# _iceberg_cli_several ACTION [WORD...]: the action for the last of several values with commas between them.
_iceberg_cli_several() {
    local begun="" several=1 pattern='^(.*[^\],)(.*)$'
    if [[ $current =~ $pattern ]]; then
        begun=${BASH_REMATCH[1]} current=${BASH_REMATCH[2]}
    fi
    "$@"
    COMPREPLY=("${COMPREPLY[@]/#/$begun}")
}

# _iceberg_cli_places KIND: files, and where the word is no path what the program knows.
_iceberg_cli_places() {
    _iceberg_cli_files
    local -i files=${#COMPREPLY[@]}
    if [[ $current != */* && $current != [.~]* ]]; then
        _iceberg_cli_ask "$1"
        if [[ $1 == tables ]] && ((${#COMPREPLY[@]} > files)); then
            compopt -o nospace 2>/dev/null
        fi
    fi
}

# _iceberg_cli_ask KIND [WORDS]: what the program knows of a kind; the words where it cannot say it.
_iceberg_cli_ask() {
    local line value program=${COMP_WORDS[0]/#\~\//$HOME/}
    local -i answers=0
    while IFS= read -r line; do
        answers+=1
        value=${line%%$'\t'*}
        if [[ -n ${several-} ]]; then
            value=${value//,/\\,}
        fi
        if [[ $value == "$current"* ]]; then
            COMPREPLY+=("$(printf '%q' "$value")")
        fi
    done < <("$program" __complete "$1" "${COMP_WORDS[@]:2:COMP_CWORD-2}" 2>/dev/null </dev/null)
    if ((answers == 0 && $# > 1)); then
        _iceberg_cli_words "$2"
    fi
}

_iceberg_cli() {
    local current=${COMP_WORDS[COMP_CWORD]} command="" option="" awaiting="" word
    local -i position=0 i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == "=" ]]; then
            awaiting=$option
        elif [[ -n $awaiting ]]; then
            awaiting=""
        elif [[ $word == -* ]]; then
            option=$word
            if [[ -n $command ]]; then
                case $word in
                    --snapshot | --ref | --at | --version | --limit | --snapshots | --columns | -o | --output | --report | --format | --engine | --spark-master | --spark-remote | --spark-conf | --catalog-config | --storage-option | --cache-size | --as-of | --progress | --log-file | --older-than | --location | --inventory | --grace | --alarm | --strategy | --sort-by | --curve-by | --min-gain | --where | --target-size | --min-size | --max-size | --min-input-files | --delete-ratio | --max-group-size | --max-files | --max-rewrite-bytes | --group-order | --commit-every | --max-commits | --processes | --memory | --branch | --delete-files | --output-spec | --output-format | --unsafe-ignore-property | --batch-size | --allow-writer-loss | --with | --feature | --min-files | --dead-ratio | --spec-id | --content | --min-manifests | --checkpoint | --part-size | --compact-log | --retain-last | --snapshot-id | --cleanup | --retention | --mode | --log-retention | --to | --keep-as | --max-age | --unsafe-allow-root | --unsafe-forget-metadata | --limit-deletes | --deadline | --metrics | --operation | --from | --kind | --policy | --prices | --jobs | --sort | --only | --max-bytes) awaiting=$word ;;
                esac
            fi
        elif [[ -z $command ]]; then
            command=$word
        else
            position+=1
        fi
    done
    if [[ $current == "=" ]]; then
        current=""
        awaiting=$option
    fi
    if [[ -n $awaiting ]]; then
        case "$command $awaiting" in
            *" --snapshot") _iceberg_cli_ask snapshots ;;
            "plan --ref" | "assign-row-ids --ref") _iceberg_cli_several _iceberg_cli_ask refs ;;
            *" --ref") _iceberg_cli_ask refs ;;
            *" --version") _iceberg_cli_ask versions ;;
            *" --columns") _iceberg_cli_several _iceberg_cli_ask columns ;;
            *" --format") _iceberg_cli_words "text json" ;;
            *" --engine") _iceberg_cli_words "auto local spark" ;;
            *" --progress") _iceberg_cli_words "auto bar lines json none" ;;
            *" --output-spec") _iceberg_cli_words "same current" ;;
            *" --output-format") _iceberg_cli_words "parquet" ;;
            *" --with") _iceberg_cli_several _iceberg_cli_words "repair-manifests merge-dvs assign-row-ids" ;;
            *" --content") _iceberg_cli_words "data deletes all" ;;
            *" --checkpoint") _iceberg_cli_words "classic v2" ;;
            *" --snapshot-id") _iceberg_cli_several _iceberg_cli_ask snapshots ;;
            *" --cleanup") _iceberg_cli_words "all metadata none" ;;
            *" --mode") _iceberg_cli_words "full lite" ;;
            *" --to") _iceberg_cli_ask states ;;
            *" --from") _iceberg_cli_words "polaris s3tables glue zamboni iceops unity" ;;
            *" --kind") _iceberg_cli_words "iceberg delta" ;;
            *" --sort") _iceberg_cli_words "freed grade name" ;;
            *" --only") _iceberg_cli_several _iceberg_cli_words "expire-snapshots rewrite-manifests merge-dvs upgrade-v3 assign-row-ids rewrite-data-files remove-orphan-files" ;;
            *" -o" | *" --output" | *" --catalog-config" | *" --log-file" | *" --inventory" | *" --metrics" | *" --policy" | *" --prices") _iceberg_cli_files ;;
        esac
    elif [[ $current == -* ]]; then
        case $command in
            "") _iceberg_cli_words "--version -h --help" ;;
            "inspect") _iceberg_cli_words "--snapshot --ref --at --version --limit --recount --check --deep --snapshots --by-partition --columns -o --output --jsonl --report --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-trust-lists --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "plan") _iceberg_cli_words "-o --output --exit-code --files --report --older-than --location --inventory --metadata-files --unsafe-allow-young --grace --alarm --unsafe-accept-alarm --strategy --sort-by --curve-by --min-gain --full --where --target-size --min-size --max-size --min-input-files --delete-ratio --rewrite-all --max-group-size --max-files --max-rewrite-bytes --group-order --commit-every --max-commits --single-commit --processes --memory --no-verify-rows --unsafe-accept-space --branch --delete-files --output-spec --output-format --no-assign-row-ids --unsafe-ignore-property --unsafe-ignore-upserts --unsafe-strand-branches --purge --leave-iceberg-behind --ref --share-ids --batch-size --count-rows --allow-writer-loss --with --unsafe-drop-tags --unsafe-keep-tags --feature --min-files --dead-ratio --keep-dangling --spec-id --content --min-manifests --all-manifests --checkpoint --part-size --compact-log --retain-last --snapshot-id --clean-metadata --cleanup --keep-writer-state --retention --mode --log-retention --unsafe-allow-short-retention --to --keep-as --not-an-ancestor --snapshot --max-age --replace --drop --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "expire-snapshots") _iceberg_cli_words "--older-than --retain-last --snapshot-id --clean-metadata --cleanup --keep-writer-state --grace --alarm --unsafe-accept-alarm --retention --mode --log-retention --inventory --unsafe-allow-short-retention -n --dry-run --exit-code --files -y --yes --no-resume --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "rewrite-manifests") _iceberg_cli_words "--target-size --spec-id --content --sort-by --min-manifests --all-manifests --checkpoint --part-size --compact-log -n --dry-run --exit-code --files -y --yes --no-resume --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "merge-dvs") _iceberg_cli_words "--target-size --min-files --dead-ratio --where --keep-dangling --allow-writer-loss -n --dry-run --exit-code --files -y --yes --no-resume --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "upgrade-v3") _iceberg_cli_words "--check --with --unsafe-drop-tags --unsafe-keep-tags --allow-writer-loss --feature -n --dry-run --exit-code --files -y --yes --no-resume --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "assign-row-ids") _iceberg_cli_words "--ref --share-ids --batch-size --count-rows --allow-writer-loss -n --dry-run --exit-code --files -y --yes --no-resume --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "rewrite-data-files") _iceberg_cli_words "--strategy --sort-by --curve-by --min-gain --full --where --target-size --min-size --max-size --min-input-files --delete-ratio --rewrite-all --max-group-size --max-files --max-rewrite-bytes --group-order --commit-every --max-commits --single-commit --processes --memory --no-verify-rows --unsafe-accept-space --branch --delete-files --output-spec --output-format --no-assign-row-ids --unsafe-ignore-property --unsafe-ignore-upserts --unsafe-strand-branches --older-than --purge --leave-iceberg-behind -n --dry-run --exit-code --files -y --yes --no-resume --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "remove-orphan-files") _iceberg_cli_words "--older-than --location --inventory --metadata-files --unsafe-allow-young --grace --alarm --unsafe-accept-alarm -n --dry-run --exit-code --files -y --yes --no-resume --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "undo") _iceberg_cli_words "-n --dry-run --exit-code --files -y --yes --no-resume --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "restore") _iceberg_cli_words "--to --branch --keep-as --not-an-ancestor --allow-writer-loss -n --dry-run --exit-code --files -y --yes --no-resume --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "tag") _iceberg_cli_words "--snapshot --ref --max-age --replace --drop -n --dry-run --exit-code --files -y --yes --no-resume --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "apply") _iceberg_cli_words "--replan -n --dry-run --exit-code --files -y --yes --no-resume --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "resume") _iceberg_cli_words "--list --abandon --limit-deletes --deadline --metrics --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "history") _iceberg_cli_words "--operation --limit --format --catalog-config --storage-option --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "demo") _iceberg_cli_words "--format --as-of -q --quiet -h --help --help-all" ;;
            "policy") _iceberg_cli_words "--from -o --output --format --catalog-config --storage-option --as-of -v --verbose -h --help --help-all" ;;
            "config") _iceberg_cli_words "--format -v --verbose -h --help --help-all" ;;
            "completion") _iceberg_cli_words "-h --help --help-all" ;;
            "list") _iceberg_cli_words "--kind --jsonl --format --catalog-config --storage-option --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "survey") _iceberg_cli_words "--policy --prices --jobs --sort --limit --quick --exit-code --metrics --jsonl --report --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
            "maintain") _iceberg_cli_words "--policy -n --dry-run --exit-code --files -y --yes --jobs --only --limit-deletes --max-bytes --deadline --memory --no-resume --metrics --jsonl --report --format --engine --spark-master --spark-remote --spark-conf --catalog-config --storage-option --unsafe-allow-root --unsafe-trust-lists --unsafe-conditional-writes --unsafe-single-writer --unsafe-forget-metadata --no-cache --cache-size --as-of -v --verbose -q --quiet --progress --no-progress --no-pager --log-file -h --help --help-all" ;;
        esac
    elif [[ -z $command ]]; then
        _iceberg_cli_words "inspect plan expire-snapshots rewrite-manifests merge-dvs upgrade-v3 assign-row-ids rewrite-data-files remove-orphan-files undo restore tag apply resume history demo policy config completion list survey maintain"
    else
        case "$command $position" in
            "inspect 0") _iceberg_cli_places tables ;;
            "inspect 1") _iceberg_cli_ask what "summary snapshots refs history schemas specs properties manifests files deletes partitions statistics metadata-log row-ids diff sample protocol features" ;;
            "inspect 2") _iceberg_cli_ask states "" ;;
            "inspect 3") _iceberg_cli_ask states "" ;;
            "plan 0") _iceberg_cli_places tables ;;
            "plan 1") _iceberg_cli_words "expire-snapshots rewrite-manifests merge-dvs upgrade-v3 assign-row-ids rewrite-data-files remove-orphan-files undo restore tag" ;;
            "expire-snapshots 0") _iceberg_cli_places tables ;;
            "rewrite-manifests 0") _iceberg_cli_places tables ;;
            "merge-dvs 0") _iceberg_cli_places tables ;;
            "upgrade-v3 0") _iceberg_cli_places tables ;;
            "assign-row-ids 0") _iceberg_cli_places tables ;;
            "rewrite-data-files 0") _iceberg_cli_places tables ;;
            "remove-orphan-files 0") _iceberg_cli_places tables ;;
            "undo 0") _iceberg_cli_places tables ;;
            "restore 0") _iceberg_cli_places tables ;;
            "tag 0") _iceberg_cli_places tables ;;
            "apply 0") _iceberg_cli_files ;;
            "resume 0") _iceberg_cli_places tables ;;
            "history 0") _iceberg_cli_places tables ;;
            "demo 0") _iceberg_cli_files ;;
            "policy 0") _iceberg_cli_words "check import" ;;
            "policy 1") _iceberg_cli_files ;;
            "policy "*) _iceberg_cli_places catalogs ;;
            "config 0") _iceberg_cli_words "show" ;;
            "config 1") _iceberg_cli_words "inspect plan expire-snapshots rewrite-manifests merge-dvs upgrade-v3 assign-row-ids rewrite-data-files remove-orphan-files undo restore tag apply resume history demo policy config list survey maintain" ;;
            "completion 0") _iceberg_cli_words "bash zsh fish" ;;
            "list "*) _iceberg_cli_places catalogs ;;
            "survey "*) _iceberg_cli_places catalogs ;;
            "maintain "*) _iceberg_cli_places catalogs ;;
        esac
    fi
}

complete -F _iceberg_cli iceberg-cli
