#!/bin/sh
# page-names.sh PAGE...: prints "PAGE NAME" for each .Nm in the NAME section of each manual page.
exec awk '
    /^\.Nd/ { named[FILENAME] = 1 }
    /^\.Nm/ && !named[FILENAME] { page = FILENAME; sub(".*/", "", page); print page, $2 }
' "$@"
