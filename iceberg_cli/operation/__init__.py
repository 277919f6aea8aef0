"""The machine that carries plans out: stage, bind, commit, sweep, journalled."""
