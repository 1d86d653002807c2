// SPDX-License-Identifier: GPL-2.0

//! The C side: bindings of RDMA and SUNRPC.
//!
//! `kernel::bindings` and what `bindgen` makes of the headers it lacks, under one roof: a C type
//! has one Rust type, wherever it comes from. Only the wrapper modules (`kext`, `verbs`, `sunrpc`,
//! `observe`) use these names.

/// What `bindgen` generated.
#[allow(
    dead_code,
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    improper_ctypes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unknown_lints,
    unnecessary_transmutes
)]
mod raw {
    // What is generated here takes precedence over a glob import.
    pub(crate) use kernel::bindings::*;
    use kernel::ffi;
    use pin_init::MaybeZeroable;

    type __kernel_size_t = usize;
    type __kernel_ssize_t = isize;
    type __kernel_ptrdiff_t = isize;

    include!(concat!(
        env!("RPCRDMA_OBJ"),
        "/rust/sys/bindings_generated.rs"
    ));

    // SAFETY: A type without size cannot keep the type it is part of from being zeroed.
    unsafe impl<T> kernel::prelude::Zeroable for __IncompleteArrayField<T> {}

    // SAFETY: The type is a plain wrapper of its storage.
    unsafe impl<S> kernel::prelude::Zeroable for __BindgenBitfieldUnit<S> where
        S: kernel::prelude::Zeroable
    {
    }
}

#[allow(unused_imports)]
pub(crate) use raw::*;
