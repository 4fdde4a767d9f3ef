#!/bin/sh
# Which names each manual page is found by: "PAGE NAME" for each .Nm of its NAME section.
exec awk '/^\.Nd/ { named[FILENAME] = 1 } /^\.Nm/ && !named[FILENAME] { page = FILENAME; sub(".*/", "", page); print page, $2 }' "$@"
