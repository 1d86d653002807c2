#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Prints the revision of the sources in a directory: what its file REVISION says,
# which a package brings along, or what git says if the directory is a git tree.
# Prints nothing if neither is there: what is not known is not shown.
#
# usage: revision.sh DIRECTORY
set -e

revision=
if [ -e "$1/REVISION" ]; then
	read -r revision <"$1/REVISION" || true
elif [ -e "$1/.git" ]; then
	# Root may build what belongs to somebody else, and writes nothing there.
	revision=$(GIT_OPTIONAL_LOCKS=0 git -C "$1" -c safe.directory='*' \
		describe --always --dirty --abbrev=12 2>/dev/null) || revision=
fi
case $revision in
'' | *[!0-9A-Za-z.+~_-]*) ;;
*) echo "$revision" ;;
esac
