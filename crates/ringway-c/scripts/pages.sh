#!/bin/sh
# pages.sh: checks that every function of the headers has exactly one manual page, that no page
# documents or refers to a missing one, that the table of pages in docs/c.md names every function of
# ringway.h, that errors are listed in the pages and not in the headers, and that mandoc has no
# warnings.
set -eu
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

for header in include/*.h; do
    scripts/functions.sh "$header"
done | sed 's/.* //' | sort -u >"$scratch/functions"
scripts/page-names.sh man/*.3 | sed 's/.* //' | sort >"$scratch/named"
sort -u "$scratch/named" >"$scratch/pages"
if ! diff "$scratch/functions" "$scratch/pages" >"$scratch/diff"; then
    echo "functions and pages differ (< without a page, > without a function):" >&2
    cat "$scratch/diff" >&2
    failed=1
fi
if uniq -d "$scratch/named" | grep . >&2; then
    echo "these functions have more than one page" >&2
    failed=1
fi
# The row of a page has its functions.
scripts/page-names.sh man/ringway_*.3 >"$scratch/rows"
while read -r page function; do
    grep "^| \`${page%.3}(3)\` |" ../../docs/c.md | grep -q "\`$function\`" ||
        { echo "docs/c.md: the row of $page lacks $function" >&2; failed=1; }
done <"$scratch/rows"
for page in man/*.[37]; do
    name=$(basename "$page")
    # Each function is in the synopsis, too.
    for function in $(scripts/page-names.sh "$page" | sed -n 's/.* //p'); do
        [ "${name##*.}" = 7 ] || grep -q "^\.Fo $function\$\|^\.Fn $function\>" "$page" ||
            { echo "$page has no synopsis of $function" >&2; failed=1; }
    done
done
mandoc -T lint -W warning man/*.[37] || failed=1
# Errors have one home, the page: the comments of the headers have no lists of them.
! grep -nE '^ \*   -?E[A-Z]+ ' include/*.h >&2 || failed=1
# References to our own pages resolve.
names='\(ringway\|ioqueue\)[a-z_]*'
for page in $(sed -n "s/^\.Xr \($names\) [37].*/\1/p" man/*.[37] | sort -u); do
    [ -e "man/$page.3" ] || [ -e "man/$page.7" ] || grep -qx "$page" "$scratch/pages" ||
        { echo "no page: $page" >&2; failed=1; }
done
[ $failed -ne 0 ] ||
    echo "pages: $(wc -l <"$scratch/functions") functions in $(ls man | wc -l) pages"
exit $failed
