#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The XDR of the review comments and proposals compiles. With a directory of the RFCs and drafts as
# argument: each OLD is in its section, and the XDR of the draft compiles with all NEW in place.
set -eu
python3 -B tests/lib/review_comments.py "$@"
