// SPDX-License-Identifier: GPL-2.0

//! Counters for people: how often something happened. Nothing is decided by them.

use kernel::sync::atomic::{Atomic, Relaxed};

/// One counter.
pub(crate) struct Counter(Atomic<u64>);

impl Counter {
    /// Zero.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Counts one.
    pub(crate) fn count(&self) {
        self.0.add(1u64, Relaxed);
    }

    /// Counts `value`.
    pub(crate) fn add_value(&self, value: u64) {
        if value != 0 {
            self.0.add(value, Relaxed);
        }
    }

    /// The sum.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Makes a structure of counters from a list of documented names.
macro_rules! counters {
    (
        $(#[$struct_doc:meta])*
        $struct:ident:
        $($(#[$doc:meta])* $name:ident),* $(,)?
    ) => {
        $(#[$struct_doc])*
        pub(crate) struct $struct {
            $($(#[$doc])* pub(crate) $name: $crate::observe::counters::Counter,)*
        }

        impl $struct {
            /// All zero.
            pub(crate) const fn new() -> Self {
                Self { $($name: $crate::observe::counters::Counter::new(),)* }
            }

            /// Calls `f` with the name and the sum of each counter.
            pub(crate) fn for_each(&self, mut f: impl FnMut(&'static str, u64)) {
                $(f(stringify!($name), self.$name.get());)*
            }
        }
    };
}

pub(crate) use counters;
