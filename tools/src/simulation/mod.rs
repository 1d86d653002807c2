// SPDX-License-Identifier: GPL-2.0

//! A server with many clients in virtual time. The decisions are those of the module
//! ([`crate::policy`], and the grants of [`crate::proto`]); their objects, requests and pages, are
//! made here. So fairness is checked by counting, the same each time, in milliseconds.

mod accept;
mod credits;
mod transfers;
