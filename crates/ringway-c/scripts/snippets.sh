#!/bin/sh
# snippets.sh DIRECTORY COMPILE LIBRARIES PAGE...: compiles the C code in manual pages and Markdown.
# Each block that begins with #include or #define is a file. A file with a main() is also linked and
# run, in an empty directory. DIRECTORY is an absolute path.
set -eu
directory=$1 compile=$2 libraries=$3
shift 3
rm -rf "$directory"
mkdir -p "$directory/empty"

for page in "$@"; do
    awk -v base="$directory/$(basename "$page")" '
        # Markdown: between fences. mdoc: literal displays of EXAMPLES, unescaped.
        FILENAME ~ /\.md$/ && /^```c$/ { n++; file = base "-" n ".c"; next }
        FILENAME ~ /\.md$/ && /^```/ { file = ""; next }
        /^\.Sh / { examples = $2 == "EXAMPLES" }
        examples && /^\.Bd -literal/ { begins = 1; next }
        /^\.Ed/ { file = ""; next }
        begins { begins = 0; if (/^#/) { n++; file = base "-" n ".c" } }
        file {
            if (FILENAME !~ /\.md$/) {
                gsub(/\\&/, ""); gsub(/\\\(aq/, "\047"); gsub(/\\\(dq/, "\"")
                gsub(/\\-/, "-"); gsub(/\\e/, "\\")
            }
            print > file
        }
    ' "$page"
done

count=0 failed=0
for file in "$directory"/*.c; do
    count=$((count + 1))
    # shellcheck disable=SC2086 # split into words
    if ! $compile -c "$file" -o "$file.o"; then
        failed=1
    elif grep -q '^int main(' "$file"; then
        $compile "$file" $libraries -o "$file.program"
        if ! (cd "$directory/empty" &&
            timeout 60 "$file.program" </dev/null >/dev/null 2>"$file.errors"); then
            echo "$file failed:" >&2
            cat "$file.errors" >&2
            failed=1
        fi
    fi
done
echo "snippets: $count compiled"
exit $failed
