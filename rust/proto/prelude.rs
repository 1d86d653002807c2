// SPDX-License-Identifier: GPL-2.0

//! The names that most files of the protocol core use.

pub(crate) use super::{
    chunk::{
        Limits,
        Segment, //
    },
    error::{
        Fault,
        Result, //
    },
    xdr::{
        Reader,
        Writer,
        UNIT, //
    },
};
