// SPDX-License-Identifier: GPL-2.0
/*
 * The trace events, and for each one the function by which Rust raises it.
 * Rust tests the event's static key itself, see trace.rs.
 */
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include <trace/events/rpcrdma_rs.h>
