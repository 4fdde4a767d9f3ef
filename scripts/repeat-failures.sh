#!/bin/sh
# Runs a command whose output is long and, when it fails, repeats what failed at the end: first what
# the failures printed, without backtraces, then one line for each, since a reader of a log that has
# been cut may see the last lines only. Usage: scripts/repeat-failures.sh LOG COMMAND...; LOG keeps
# the whole output.
set -eu
log=$1
shift
mkdir -p "$(dirname "$log")"
status=$(mktemp)
trap 'rm -f "$status"' EXIT
{
    code=0
    "$@" 2>&1 || code=$?
    echo "$code" >"$status"
} | tee "$log"
code=$(cat "$status")
[ "$code" -ne 0 ] || exit 0

echo
echo "FAILED ($*). What it says of the failures; all of it is in $log:"
# A block has at most 40 lines, so that one failure cannot hide the others. Of a command that make
# calls failed, whatever it is, the last 25 lines that are not in a block.
awk '
	function show(lines) { if (block < lines) block = lines }
	function before(    line) {
		for (line = NR - 25; line < NR; line++) if (line in kept) print kept[line]
		delete kept
	}
	/^ +[0-9]+: / || /^ +at / || /^stack backtrace:/ || /^note: Some details/ { next }
	/^make.*: [*][*][*] .* Error / { before(); next }
	/^make.*: (Leaving|Entering|[*][*][*])/ { next }
	/^failures:$/ || /^ *--- FAIL|^=== FAIL|^=+ FAILURES =+/ { show(40) }
	/^error(\[|:)|: error: |^ERROR|^Error|^FAILED / { show(12) }
	/CI is set|Sanitizer|DATA RACE|[Aa]ssertion/ { show(12) }
	/ alias .* \(exit |\[FAIL\]/ { show(25) }
	/^thread .* panicked at / { show(4) }
	{ if (block > 0) { print; block-- } else { kept[NR] = $0; delete kept[NR - 25] } }
	/^test result: / { block = 0 }
' "$log" | tail -n 200
echo
echo "In short:"
failure='^test .*[.]{3} FAILED|^ *--- FAIL|^FAIL|: FAILED with |[*]{3}|^error(\[|:)|: error: '
failure="$failure|CI is set|Sanitizer:| alias .* \(exit |\[FAIL\]|^FAILED "
grep -aE "$failure" "$log" | cut -c 1-160 | awk '!seen[$0]++' | tail -n 15
exit "$code"
