// SPDX-License-Identifier: GPL-2.0

//! A directory in debugfs with files about one object.
//!
//! `kernel::debugfs` lacks one thing: its files do not refer to the module, so a file that is still
//! open could be closed by code that has gone. See `debugfs.c`.
//!
//! # Who owns what, and what ends it
//!
//! A [`Directory`] owns a reference to the object. The object, if it owns the directory in turn,
//! must drop it before it can itself be freed.

use crate::kext::prelude::*;
use crate::sys;
use kernel::{
    fmt,
    seq_file::SeqFile, //
};

/// Prints lines of `name: value` into a file.
macro_rules! lines {
    ($m:expr, $($name:literal: $value:expr),* $(,)?) => {
        $(kernel::seq_print!($m, "{}: {}\n", $name, $value);)*
    };
}

/// Makes the list of an object's files. Each has the name of the function that writes it, and
/// perhaps another function, which is called when something is written into it.
macro_rules! files {
    ($($show:ident $(=> $reset:ident)?),* $(,)?) => {
        &[$($crate::kext::debugfs::File {
            name: kernel::c_str!(stringify!($show)),
            show: $show,
            reset: [$(Some($reset as fn(&Self)),)? None][0],
        },)*]
    };
}

pub(crate) use files;
pub(crate) use lines;

/// The number by which debugfs names a directory, and trace events name a connection. Both kinds of
/// numbers are below `1 << 31`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// A transport of the client.
    Client(u32),
    /// A connection of the server.
    Server(u32),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(number) => write!(f, "{number}"),
            Self::Server(number) => write!(f, "server/{number}"),
        }
    }
}

/// An object that has files in debugfs.
pub(crate) trait Inspect: Send + Sync + Sized + 'static {
    /// The files in the object's directory.
    const FILES: &'static [File<Self>];
}

/// C's pointer to [`Directory::reset_callback`].
type ResetCallback = unsafe extern "C" fn(*const sys::rpcrdma_debugfs_file);

/// A file in a [`Directory`].
pub(crate) struct File<T> {
    /// The name of the file.
    pub(crate) name: &'static CStr,
    /// Writes the contents of the file. May sleep, but must not wait for a thread that drops a
    /// [`Directory`].
    pub(crate) show: fn(&T, &SeqFile),
    /// Called when something is written into the file, whatever that is. The same holds for it.
    pub(crate) reset: Option<fn(&T)>,
}

/// The data of a file, to which C has a pointer.
#[repr(C)]
struct Entry<T> {
    /// The part that C knows. It is first, so that C's pointer is one to the whole entry.
    raw: sys::rpcrdma_debugfs_file,
    show: fn(&T, &SeqFile),
    reset: Option<fn(&T)>,
    object: *const T,
}

/// A directory, with its files. When it is dropped, it is removed, which waits for reads under way.
///
/// # Invariants
///
/// The `object` of each entry points at the object of `_object`. The entries do not move while
/// `dir` exists.
pub(crate) struct Directory<T: Inspect> {
    dir: *mut sys::dentry,
    /// The entries of the files. They are freed after `drop` has removed the directory.
    _entries: KVec<Entry<T>>,
    _object: Arc<T>,
}

// SAFETY: debugfs does its own locking, so any thread may remove the directory. The entries are
// only read, and refer to a `T`, which may be used from any thread.
unsafe impl<T: Inspect> Send for Directory<T> {}

impl<T: Inspect> Directory<T> {
    /// Makes the directory of the transport or connection `number`, with the files of `object`.
    ///
    /// A directory or file that cannot be made is missing. As is usual with debugfs, that is not an
    /// error.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(number: Number, object: Arc<T>) -> Result<Self> {
        let mut entries = KVec::with_capacity(T::FILES.len(), GFP_KERNEL)?;
        for file in T::FILES {
            let entry = Entry {
                raw: sys::rpcrdma_debugfs_file {
                    show: Some(Self::show_callback),
                    reset: file.reset.map(|_| Self::reset_callback as ResetCallback),
                },
                show: file.show,
                reset: file.reset,
                object: Arc::as_ptr(&object),
            };
            entries.push(entry, GFP_KERNEL)?;
        }
        let (server, id) = match number {
            Number::Client(id) => (false, id),
            Number::Server(id) => (true, id),
        };
        // SAFETY: No preconditions.
        let dir = unsafe { sys::rpcrdma_debugfs_add_dir(server, id) };
        for (entry, file) in entries.iter().zip(T::FILES) {
            let entry: *const Entry<T> = entry;
            // SAFETY: `dir` is from `rpcrdma_debugfs_add_dir`; the name is copied. The entry is in
            // the heap memory of `entries`, which does not grow any more and is freed only after
            // the directory was removed.
            unsafe { sys::rpcrdma_debugfs_add_file(dir, file.name.as_char_ptr(), entry.cast()) };
        }
        // INVARIANT: The loop above has set each `object` so, and the heap memory of `entries` does
        // not move.
        Ok(Self {
            dir,
            _entries: entries,
            _object: object,
        })
    }

    /// # Safety
    ///
    /// Called by `rpcrdma_debugfs_show` with a live `seq_file` and an entry that `new` handed out,
    /// before the removal of its directory returned.
    unsafe extern "C" fn show_callback(
        m: *mut sys::seq_file,
        file: *const sys::rpcrdma_debugfs_file,
    ) {
        // SAFETY: The caller guarantees that `file` is the first member of a valid entry that `new`
        // made.
        let entry = unsafe { &*file.cast::<Entry<T>>() };
        // SAFETY: By the type invariant, the directory's reference keeps the object until `drop`
        // has removed the directory, which waits for this function.
        let object = unsafe { &*entry.object };
        // SAFETY: The caller guarantees that the `seq_file` is live.
        let m = unsafe { SeqFile::from_raw(m) };
        (entry.show)(object, m);
    }

    /// # Safety
    ///
    /// As for [`Self::show_callback`], called by `rpcrdma_debugfs_write`.
    unsafe extern "C" fn reset_callback(file: *const sys::rpcrdma_debugfs_file) {
        // SAFETY: As in `show_callback`.
        let entry = unsafe { &*file.cast::<Entry<T>>() };
        // SAFETY: As in `show_callback`.
        let object = unsafe { &*entry.object };
        if let Some(reset) = entry.reset {
            reset(object);
        }
    }
}

impl<T: Inspect> Drop for Directory<T> {
    fn drop(&mut self) {
        // SAFETY: `dir` is from `rpcrdma_debugfs_add_dir` and was not removed before.
        unsafe { sys::rpcrdma_debugfs_remove_dir(self.dir) };
    }
}

/// The directory of all directories. There must be only one, made by the module's init.
pub(crate) struct Root(());

impl Root {
    /// Makes the directory.
    pub(crate) fn new() -> Self {
        // SAFETY: Called once, before any directory is made.
        unsafe { sys::rpcrdma_debugfs_init() };
        Self(())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // SAFETY: The module is being unloaded, so there is no transport, and no directory in it.
        unsafe { sys::rpcrdma_debugfs_exit() };
    }
}
