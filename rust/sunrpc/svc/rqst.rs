// SPDX-License-Identifier: GPL-2.0

//! The `svc_rqst` of a thread, while it takes a Call in and while it sends the Reply.

use super::{
    ops::{
        CallContext,
        ServerTransport, //
    },
    pages::{
        FreshPages,
        Pages, //
    },
    xprt::SvcXprt, //
};
use crate::kext::prelude::*;
use crate::{
    kext::num,
    sunrpc::XdrBuf,
    sys, //
};
use core::ptr;

/// A thread that looks for a Call. While it exists no other thread does.
///
/// # Invariants
///
/// `rqst` is the thread's, and its transport has the lock bit `XPT_BUSY` set on its behalf until
/// `let_in`.
pub(crate) struct CallRqst<'a, T: ServerTransport> {
    /// The C object.
    rqst: NonNull<sys::svc_rqst>,
    /// Set if the next thread was let in.
    let_in: bool,
    /// The transport, which the thread holds a reference to.
    xprt: &'a SvcXprt,
    /// Whose contexts it gets.
    _transport: PhantomData<fn(T)>,
}

impl<'a, T: ServerTransport> CallRqst<'a, T> {
    /// Wraps what `xpo_recvfrom` was called with.
    ///
    /// # Safety
    ///
    /// To be called once in `xpo_recvfrom` of a `T`.
    pub(super) unsafe fn from_raw(rqst: NonNull<sys::svc_rqst>, xprt: &'a SvcXprt) -> Self {
        // SAFETY: The caller guarantees it. With this, no page of the Reply is released if there is
        // no Call.
        unsafe {
            (*rqst.as_ptr()).rq_next_page = (*rqst.as_ptr()).rq_respages;
            (*rqst.as_ptr()).rq_xprt_ctxt = ptr::null_mut();
        }
        Self {
            rqst,
            let_in: false,
            xprt,
            _transport: PhantomData,
        }
    }

    /// Lets the next thread look for a Call.
    pub(crate) fn let_next_in(&mut self) {
        if !self.let_in {
            self.let_in = true;
            self.xprt.received();
        }
    }

    /// Takes `count` pages out, for a Call that is still to be read, and of which the last `tail`
    /// octets follow elsewhere. What is left has no use but to wait for the next Call.
    ///
    /// As many pages stay as would hold the tail, and one more. So code that takes the tail for a
    /// part of the pages, as `gss_read_proxy_verf` does, finds pages of the thread's, and neither
    /// the end of the array nor a null pointer.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are not as many, or the second time; `ENOMEM`.
    pub(crate) fn take_pages(&mut self, count: usize, tail: usize) -> Result<FreshPages> {
        // SAFETY: The object is ours.
        let rqst = unsafe { &mut *self.rqst.as_ptr() };
        let kept = tail.div_ceil(PAGE_SIZE).saturating_add(1);
        if count.saturating_add(kept) > rqst.rq_maxpages || rqst.rq_pages_nfree != 0 {
            return Err(EINVAL);
        }
        // Only now: the peer has chosen the count.
        let mut pages = FreshPages::with_capacity(count)?;
        for at in 0..count {
            // SAFETY: The index is below `rq_maxpages`, so the entry exists; `svc_alloc_arg` has
            // filled it, and the thread has used none since: it has not received a Call yet.
            unsafe {
                let entry = rqst.rq_pages.add(at);
                let Some(page) = NonNull::new(*entry) else {
                    break;
                };
                pages.push(page)?;
                *entry = ptr::null_mut();
            }
            // `svc_alloc_arg` fills as many again.
            rqst.rq_pages_nfree = at + 1;
        }
        if pages.len() == count {
            Ok(pages)
        } else {
            Err(EINVAL)
        }
    }

    /// Returns whether the thread has pages for a copy of a message of `len` octets.
    pub(crate) fn holds(&self, len: usize) -> bool {
        // SAFETY: The object is ours.
        let rqst = unsafe { &*self.rqst.as_ptr() };
        len != 0 && len.div_ceil(PAGE_SIZE) < rqst.rq_maxpages && rqst.rq_pages_nfree == 0
    }

    /// Delivers a Call that is wholly in its message. Returns its length.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it had to be copied, and the thread has not as many pages.
    pub(crate) fn deliver(self, context: KBox<T::Context>) -> Result<usize> {
        if context.is_scattered() {
            return self.deliver_copy(context);
        }
        let (start, len) = range(&context);
        // SAFETY: The object is ours.
        let arg = unsafe { &mut (*self.rqst.as_ptr()).rq_arg };
        arg.head[0].iov_base = start;
        arg.head[0].iov_len = len;
        arg.tail[0].iov_base = ptr::null_mut();
        arg.tail[0].iov_len = 0;
        arg.page_len = 0;
        arg.page_base = 0;
        Ok(self.finish(context, len))
    }

    /// Delivers a Call as a copy in the thread's own pages.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are not as many.
    fn deliver_copy(self, context: KBox<T::Context>) -> Result<usize> {
        let message = context.message();
        let len = message.len();
        if !self.holds(len) {
            return Err(EINVAL);
        }
        // SAFETY: The object is ours.
        let rqst = unsafe { &mut *self.rqst.as_ptr() };
        for (at, part) in message.chunks(PAGE_SIZE).enumerate() {
            // SAFETY: The index is below `rq_maxpages`, so the entry exists. If there is a page, it
            // is the thread's, and its memory is mapped, since `svc_alloc_arg` asks for such.
            unsafe {
                let page = NonNull::new(*rqst.rq_pages.add(at)).ok_or(EINVAL)?;
                let to = sys::page_address(page.as_ptr()).cast::<u8>();
                ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            }
        }
        self.finish_pages(context, len)
    }

    /// Delivers a Call, with the first `data_len` octets of `pages` inserted into its message at
    /// `position`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if any of it does not fit.
    pub(crate) fn deliver_split(
        mut self,
        context: KBox<T::Context>,
        position: usize,
        pages: FreshPages,
        data_len: usize,
    ) -> Result<usize> {
        let (start, len) = range(&context);
        let tail = len.checked_sub(position).ok_or(EINVAL)?;
        let page_len = u32::try_from(data_len)?;
        if data_len > pages.len().checked_mul(PAGE_SIZE).ok_or(EINVAL)? {
            return Err(EINVAL);
        }
        self.put_pages(pages)?;
        // SAFETY: The object is ours.
        let rqst = unsafe { &mut *self.rqst.as_ptr() };
        let arg = &mut rqst.rq_arg;
        arg.head[0].iov_base = start;
        arg.head[0].iov_len = position;
        arg.pages = rqst.rq_pages;
        arg.page_base = 0;
        arg.page_len = page_len;
        arg.tail[0].iov_base = start.cast::<u8>().wrapping_add(position).cast();
        arg.tail[0].iov_len = tail;
        Ok(self.finish(context, len.checked_add(data_len).ok_or(EINVAL)?))
    }

    /// Delivers a Call that is the first `len` octets of `pages`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it does not fit.
    pub(crate) fn deliver_pages(
        mut self,
        context: KBox<T::Context>,
        pages: FreshPages,
        len: usize,
    ) -> Result<usize> {
        if len > pages.len().checked_mul(PAGE_SIZE).ok_or(EINVAL)? || len == 0 {
            return Err(EINVAL);
        }
        self.put_pages(pages)?;
        self.finish_pages(context, len)
    }

    /// Delivers a Call that is the first `len` octets, more than none, of the thread's pages.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW`.
    fn finish_pages(self, context: KBox<T::Context>, len: usize) -> Result<usize> {
        let head = len.min(PAGE_SIZE);
        let page_len = u32::try_from(len - head)?;
        // SAFETY: The object is ours; the first page is there, since `len` is not zero.
        unsafe {
            let rqst = &mut *self.rqst.as_ptr();
            let arg = &mut rqst.rq_arg;
            arg.head[0].iov_base = sys::page_address(*rqst.rq_pages);
            arg.head[0].iov_len = head;
            arg.pages = rqst.rq_pages.add(1);
            arg.page_base = 0;
            arg.page_len = page_len;
            arg.tail[0].iov_base = ptr::null_mut();
            arg.tail[0].iov_len = 0;
        }
        Ok(self.finish(context, len))
    }

    /// Puts pages in the places of the thread's first ones, whose references are given back.
    fn put_pages(&mut self, pages: FreshPages) -> Result {
        let mut pages = pages.into_pages();
        // SAFETY: The object is ours.
        let rqst = unsafe { &mut *self.rqst.as_ptr() };
        if pages.len() >= rqst.rq_maxpages {
            return Err(EINVAL);
        }
        // SAFETY: The thread has `rq_maxpages` places, more than there are pages. Each has a
        // reference of the thread's to its page, if there is one.
        unsafe { pages.exchange(rqst.rq_pages) };
        Ok(())
    }

    /// Sets what all Calls have in common.
    fn finish(mut self, context: KBox<T::Context>, len: usize) -> usize {
        self.let_next_in();
        // SAFETY: The object is ours; the transport is valid. The context is given back by
        // `xpo_release_ctxt`.
        unsafe {
            let rqst = self.rqst.as_ptr();
            (*rqst).rq_arg.len = len as u32;
            (*rqst).rq_arg.buflen = len as u32;
            (*rqst).rq_xprt_ctxt = KBox::into_raw(context).cast();
            (*rqst).rq_prot = sys::RPCRDMA_IPPROTO_MAX;
            sys::svc_xprt_copy_addrs(rqst, self.xprt.as_raw());
            sys::svc_rqst_set_flag(rqst, sys::RQ_SECURE);
        }
        len
    }
}

impl<T: ServerTransport> Drop for CallRqst<'_, T> {
    fn drop(&mut self) {
        self.let_next_in();
    }
}

/// Start and length of a Call's message. It stays where it is while the context exists, see
/// [`CallContext`].
fn range<C: CallContext>(context: &KBox<C>) -> (*mut c_void, usize) {
    let message = context.message();
    (message.as_ptr().cast_mut().cast(), message.len())
}

/// A thread that has a Reply to send.
///
/// # Invariants
///
/// `rqst` is the thread's, with a context from [`CallRqst`] and a complete Reply in `rq_res`.
pub(crate) struct ReplyRqst<'a, T: ServerTransport> {
    /// The C object.
    rqst: NonNull<sys::svc_rqst>,
    /// The thread waits for the answer.
    _thread: PhantomData<&'a T>,
}

impl<T: ServerTransport> ReplyRqst<'_, T> {
    /// Wraps what `xpo_sendto` was called with.
    ///
    /// # Safety
    ///
    /// To be called in `xpo_sendto` of a `T`, once.
    pub(super) unsafe fn from_raw(rqst: NonNull<sys::svc_rqst>) -> Self {
        Self {
            rqst,
            _thread: PhantomData,
        }
    }

    /// Returns when the thread had the Call, as [`ktime`](crate::kext::time::ktime) tells it.
    pub(crate) fn began(&self) -> i64 {
        // SAFETY: Only this thread has the RPC.
        unsafe { (*self.rqst.as_ptr()).rq_stime }
    }

    /// The context of the Call.
    pub(crate) fn context(&self) -> &T::Context {
        // SAFETY: `CallRqst::finish` has put it there; it is released after `xpo_sendto` has
        // returned.
        unsafe { &*(*self.rqst.as_ptr()).rq_xprt_ctxt.cast::<T::Context>() }
    }

    /// The context of the Call, to change it.
    pub(crate) fn context_mut(&mut self) -> &mut T::Context {
        // SAFETY: As for `context`; nobody but this thread has the RPC.
        unsafe { &mut *(*self.rqst.as_ptr()).rq_xprt_ctxt.cast::<T::Context>() }
    }

    /// The Reply.
    pub(crate) fn reply(&self) -> &XdrBuf {
        // SAFETY: The thread waits, so the Reply stays as it is. Its head and tail are in pages of
        // the thread's.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst.as_ptr()).rq_res) }
    }

    /// Takes out all pages that the Reply is in. It can be looked at as before while they are kept.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; then they are still with the thread.
    pub(crate) fn take_pages(&mut self) -> Result<Pages> {
        // SAFETY: The object is ours, so nobody else uses it meanwhile.
        let rqst = unsafe { self.rqst.as_mut() };
        // SAFETY: By the invariant it has a complete Reply.
        unsafe { take_reply_pages(rqst) }
    }
}

/// Takes out all pages that the Reply of a thread is in. `svc_alloc_arg` fills their places again.
///
/// # Safety
///
/// `rqst` is as `svc_alloc_arg` makes it, and has a complete Reply.
unsafe fn take_reply_pages(rqst: &mut sys::svc_rqst) -> Result<Pages> {
    raise_next_page(rqst);
    let first = rqst.rq_respages;
    // SAFETY: Both pointers are into the same array.
    let count = usize::try_from(unsafe { rqst.rq_next_page.offset_from(first) })?;
    let mut pages = Pages::with_capacity(count)?;
    for at in 0..count {
        // SAFETY: The entry is in the array. A page that is missing was taken out by somebody
        // else.
        unsafe {
            let entry = first.add(at);
            if let Some(page) = NonNull::new(*entry) {
                pages.push(page)?;
                *entry = ptr::null_mut();
            }
        }
    }
    Ok(pages)
}

/// Raises `rq_next_page` above all pages of the Reply.
///
/// Linux 7.3 and earlier count the pages of an NFSv4 Reply when an operation has been encoded, and
/// `svcauth_gss_wrap_integ` then appends the checksum of krb5i. If the data end with a page, the
/// checksum is in the next one. A long ACL of NFSv3 is in pages that are not counted either. SUNRPC
/// leaves such a page to the thread, which writes the next Reply into it while a device may still
/// have to send it.
fn raise_next_page(rqst: &mut sys::svc_rqst) {
    let reply = &rqst.rq_res;
    // NFSv2 has the page of a READLINK in a list of its own, and counts it.
    let is_own = (rqst.rq_respages..rqst.rq_page_end).contains(&reply.pages);
    if reply.page_len == 0 || !is_own {
        return;
    }
    let len = num::u32_as_usize(reply.page_base).saturating_add(num::u32_as_usize(reply.page_len));
    let end = reply.pages.wrapping_add(len.div_ceil(PAGE_SIZE));
    rqst.rq_next_page = rqst.rq_next_page.max(end).min(rqst.rq_page_end);
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_sunrpc_svc_rqst)]
mod tests {
    use super::*;

    /// Places for pages, without the one behind them that ends the array.
    const PLACES: usize = 6;

    /// A `svc_rqst` with a Reply, and its array of pages.
    struct Rqst {
        raw: KBox<sys::svc_rqst>,
        places: KVec<*mut sys::page>,
    }

    impl Rqst {
        /// Makes one that counts `counted` pages, of which the first has the head of the Reply.
        /// `len` octets are in the others, from octet `base` on.
        fn new(counted: usize, base: u32, len: u32) -> Result<Self> {
            let mut places = KVec::new();
            for _ in 0..PLACES {
                // SAFETY: No preconditions; the test may sleep.
                let page = unsafe { sys::alloc_page(sys::GFP_KERNEL) };
                places.push(NonNull::new(page).ok_or(ENOMEM)?.as_ptr(), GFP_KERNEL)?;
            }
            places.push(ptr::null_mut(), GFP_KERNEL)?;
            let mut raw = KBox::<sys::svc_rqst>::init(pin_init::init_zeroed(), GFP_KERNEL)?;
            let first = places.as_mut_ptr();
            raw.rq_respages = first;
            raw.rq_page_end = first.wrapping_add(PLACES);
            raw.rq_next_page = first.wrapping_add(counted);
            raw.rq_res.pages = first.wrapping_add(1);
            raw.rq_res.page_base = base;
            raw.rq_res.page_len = len;
            Ok(Self { raw, places })
        }

        /// Takes the pages of the Reply. Returns how many these are, and for how many places
        /// `svc_alloc_arg` allocates pages.
        fn take(&mut self) -> Result<(usize, usize)> {
            // SAFETY: The structure is complete, with a Reply.
            let pages = unsafe { take_reply_pages(&mut self.raw) }?;
            let first = self.places.as_ptr().addr();
            let filled = (self.raw.rq_next_page.addr() - first) / size_of::<*mut sys::page>();
            let left = self.places.iter().filter(|place| !place.is_null()).count();
            assert_eq!(left + pages.len(), PLACES);
            Ok((pages.len(), filled))
        }
    }

    impl Drop for Rqst {
        fn drop(&mut self) {
            for page in self.places.iter().filter(|place| !place.is_null()) {
                // SAFETY: The reference belongs to the place, which is gone.
                unsafe { sys::release_pages([*page].as_mut_ptr(), 1) };
            }
        }
    }

    /// As [`u32`].
    fn octets(pages: usize, more: usize) -> Result<u32> {
        Ok(u32::try_from(pages * PAGE_SIZE + more)?)
    }

    #[test]
    fn all_pages_of_a_reply_are_taken() -> Result {
        // The checksum of krb5i is in a page that is not counted.
        assert_eq!(Rqst::new(2, 0, octets(1, 32)?)?.take()?, (3, 3));
        assert_eq!(Rqst::new(4, 0, octets(3, 4)?)?.take()?, (5, 5));
        // So are the entries of an ACL.
        assert_eq!(Rqst::new(1, 0, 100)?.take()?, (2, 2));
        // Data that do not begin with a page.
        assert_eq!(Rqst::new(2, octets(1, 0)? - 1, 2)?.take()?, (3, 3));
        Ok(())
    }

    #[test]
    fn no_other_page_of_a_thread_is_taken() -> Result {
        assert_eq!(Rqst::new(1, 0, 0)?.take()?, (1, 1));
        assert_eq!(Rqst::new(2, 0, octets(1, 0)?)?.take()?, (2, 2));
        // What is counted may be more than the Reply needs.
        assert_eq!(Rqst::new(5, 0, 100)?.take()?, (5, 5));
        // The array ends.
        assert_eq!(
            Rqst::new(3, 0, octets(PLACES, 0)?)?.take()?,
            (PLACES, PLACES)
        );
        // A list of another owner.
        let mut elsewhere = [ptr::null_mut(); 2];
        let mut rqst = Rqst::new(2, 0, octets(2, 0)?)?;
        rqst.raw.rq_res.pages = elsewhere.as_mut_ptr();
        assert_eq!(rqst.take()?, (2, 2));
        Ok(())
    }
}
