// SPDX-License-Identifier: GPL-2.0

//! Counters of events, for statistics. No decision of the module depends on them.

use crate::kext::prelude::*;

/// A counter.
pub(crate) struct Counter(Atomic<u64>);

impl Counter {
    /// Makes a counter that is zero.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds one.
    pub(crate) fn count(&self) {
        self.0.add(1u64, Relaxed);
    }

    /// Adds `value`.
    pub(crate) fn add_value(&self, value: u64) {
        if value != 0 {
            self.0.add(value, Relaxed);
        }
    }

    /// Returns the sum.
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
            /// Makes the structure with all counters zero.
            pub(crate) const fn new() -> Self {
                Self { $($name: $crate::observe::counters::Counter::new(),)* }
            }

            /// Writes each counter into a file in debugfs, as `name: value`.
            pub(crate) fn show(&self, m: &kernel::seq_file::SeqFile) {
                $(kernel::seq_print!(m, "{}: {}\n", stringify!($name), self.$name.get());)*
            }
        }
    };
}

pub(crate) use counters;
