// SPDX-License-Identifier: GPL-2.0

//! Bindings of the C code of RDMA and SUNRPC.
//!
//! This module has the names of `kernel::bindings` and those that `bindgen` makes of the headers it
//! lacks, so that a C type has one Rust type, wherever it comes from. Only the wrapper modules
//! (`kext`, `rdma`, `endpoint`, `sunrpc`, `observe`) use these names.

/// The output of `bindgen`.
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
    // Names that are generated here take precedence over those of a glob import.
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
