// SPDX-License-Identifier: GPL-2.0

//! The gate of an endpoint's Receive Queue.

use crate::kext::prelude::*;
use crate::{
    endpoint::{
        quota::RECEIVES,
        receive_stock::Stock,
        Sizes, //
    },
    rdma::{
        cm::QueuePairUser,
        receive_buffer::{
            Own,
            ReceiveBuffer,
            Receives,
            RECEIVE_BATCH, //
        }, //
    }, //
};
use core::iter;

/// The gate of the Receive Queue.
pub(super) struct ReceiveGate<O: Receives> {
    /// The QP, while the gate is open.
    pub(super) qp: Option<QueuePairUser>,
    /// The buffers that are neither posted nor lent out. With room for all of them.
    pub(super) idle: KVVec<ReceiveBuffer<Own<O>>>,
    /// How many buffers there are and should be.
    pub(super) stock: Stock,
    /// The number of buffers that are posted or lent out.
    out: u32,
    /// The octets of all buffers, if they count for all connections of the server.
    counted: Option<u64>,
}

impl<O: Receives> ReceiveGate<O> {
    /// The gate is shut, and there are no buffers.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(sizes: &Sizes, shares: bool) -> Result<Self> {
        let (most, target) = if shares {
            (0, 0)
        } else {
            (sizes.receives, sizes.first_receives)
        };
        Ok(Self {
            qp: None,
            idle: KVVec::with_capacity(usize::try_from(most)?, GFP_KERNEL)?,
            stock: Stock::new(target, most, sizes.receive_size),
            out: 0,
            counted: sizes.counts_receives.then_some(0),
        })
    }

    /// Counts a buffer that the caller is about to make, if there are too few. Returns its size.
    pub(super) fn claim(&mut self) -> Option<usize> {
        let size = self.stock.claim()?;
        if let Some(counted) = &mut self.counted {
            *counted += size as u64;
            RECEIVES.add(size as u64);
        }
        Some(size)
    }

    /// A buffer of this size is not there, or not any more.
    fn uncount(&mut self, size: usize) {
        if let Some(counted) = &mut self.counted {
            *counted -= size as u64;
            RECEIVES.sub(size as u64);
        }
    }

    /// The buffer of `size` octets that was [claimed](Self::claim) is there, or could not be made.
    pub(super) fn claimed(&mut self, size: usize, buffer: Option<ReceiveBuffer<Own<O>>>) {
        match buffer {
            Some(buffer) => self.keep(buffer),
            None => {
                self.stock.unclaim(size);
                self.uncount(size);
            }
        }
    }

    /// Keeps a buffer that is neither posted nor lent out.
    fn keep(&mut self, buffer: ReceiveBuffer<Own<O>>) {
        // Never more than the capacity: each buffer is out once.
        let _ = self.idle.push_within_capacity(buffer);
    }

    /// Takes a buffer back. Returns it if it is not wanted any more.
    pub(super) fn put(&mut self, buffer: ReceiveBuffer<Own<O>>) -> Option<ReceiveBuffer<Own<O>>> {
        self.out = self.out.saturating_sub(1);
        if self.stock.keeps(buffer.len()) {
            self.keep(buffer);
            return None;
        }
        self.uncount(buffer.len());
        Some(buffer)
    }

    /// Takes a buffer back whose QP is in error: to post it again would only have it flushed again.
    pub(super) fn put_back(&mut self, buffer: ReceiveBuffer<Own<O>>) {
        self.out = self.out.saturating_sub(1);
        self.keep(buffer);
    }

    /// Posts the idle buffers if there is a batch of them, or the peer counts on more than are
    /// posted.
    ///
    /// # Errors
    ///
    /// As for [`Self::post`].
    pub(super) fn post_batch(&mut self) -> Result {
        let is_batch = self.idle.len() >= self.stock.batch() as usize;
        let is_due = is_batch || self.out < self.stock.target();
        if self.qp.is_some() && is_due {
            self.post()
        } else {
            Ok(())
        }
    }

    /// Posts all idle buffers.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, or what the device reports. Then the connection must end: the
    /// buffers are not idle any more.
    pub(super) fn post(&mut self) -> Result {
        let qp = self.qp.as_ref().ok_or(ENOTCONN)?;
        let idle = &mut self.idle;
        while !idle.is_empty() {
            let count = idle.len().min(RECEIVE_BATCH as usize);
            qp.post_receives(iter::from_fn(|| idle.pop()))?;
            self.out += count as u32;
        }
        Ok(())
    }

    /// Returns the number of Receives that are posted or in use.
    pub(super) fn there(&self) -> u32 {
        self.out
    }

    /// Returns the octets to be taken off the sum of all connections when the endpoint ends.
    pub(super) fn take_counted(&mut self) -> u64 {
        self.counted.take().unwrap_or(0)
    }
}
