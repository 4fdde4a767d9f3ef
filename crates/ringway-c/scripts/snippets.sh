#!/bin/sh
# snippets.sh FOLDER COMPILE LIBRARIES PAGE...: compiles the C code in manual pages and Markdown. Each block is a file of its own,
# beginning with #include or #define. One that has a main() is linked and run too, in an empty folder. FOLDER is an absolute path.
set -eu
folder=$1 compile=$2 libraries=$3
shift 3
rm -rf "$folder"
mkdir -p "$folder/empty"

for page in "$@"; do
    awk -v base="$folder/$(basename "$page")" '
        # Markdown: between the fences. mdoc: in literal displays of EXAMPLES, without what mdoc wants escaped.
        FILENAME ~ /\.md$/ && /^```c$/ { n++; file = base "-" n ".c"; next }
        FILENAME ~ /\.md$/ && /^```/ { file = ""; next }
        /^\.Sh / { examples = $2 == "EXAMPLES" }
        examples && /^\.Bd -literal/ { begins = 1; next }
        /^\.Ed/ { file = ""; next }
        begins { begins = 0; if (/^#/) { n++; file = base "-" n ".c" } }
        file {
            if (FILENAME !~ /\.md$/) { gsub(/\\&/, ""); gsub(/\\\(aq/, "\047"); gsub(/\\\(dq/, "\""); gsub(/\\-/, "-"); gsub(/\\e/, "\\") }
            print > file
        }
    ' "$page"
done

count=0 failed=0
for file in "$folder"/*.c; do
    count=$((count + 1))
    # shellcheck disable=SC2086 # words, each of them
    if ! $compile -c "$file" -o "$file.o"; then
        failed=1
    elif grep -q '^int main(' "$file"; then
        $compile "$file" $libraries -o "$file.program"
        if ! (cd "$folder/empty" && timeout 60 "$file.program" </dev/null >/dev/null 2>"$file.errors"); then
            echo "$file does not run:" >&2
            cat "$file.errors" >&2
            failed=1
        fi
    fi
done
echo "snippets: $count compiled"
exit $failed
