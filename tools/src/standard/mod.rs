// SPDX-License-Identifier: GPL-2.0

//! What the documents for the working group show is what the code does.
//!
//! Their examples stand between two comments. A test makes each of them anew and compares.

mod credits;
mod document;
mod negotiation;
mod vectors;
