// SPDX-License-Identifier: GPL-2.0

//! A queue with a fixed number of places, both ends of which cost the same however long it is.

use crate::kext::prelude::*;

/// Elements in the order in which they came.
///
/// Adding and taking out never allocates or frees, so it may be done under a spinlock.
pub(crate) struct Fifo<T> {
    /// The places. Those from `head` on have the elements, around the end of the places.
    places: KVVec<Option<T>>,
    /// Where the oldest element is, below the number of places.
    head: usize,
    /// The number of elements.
    len: usize,
}

impl<T> Fifo<T> {
    /// A queue without places.
    pub(crate) const fn new() -> Self {
        Self {
            places: KVVec::new(),
            head: 0,
            len: 0,
        }
    }

    /// A queue with `capacity` places. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn with_capacity(capacity: usize) -> Result<Self> {
        let mut places = KVVec::with_capacity(capacity, GFP_KERNEL)?;
        // There may be room for more, for the allocator rounds up.
        while places.len() < capacity && places.push_within_capacity(None).is_ok() {}
        Ok(Self {
            places,
            head: 0,
            len: 0,
        })
    }

    /// Returns the number of places.
    pub(crate) fn capacity(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no element.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the place of the element `index`, where the oldest one is zero, or of the next one
    /// if it is the number of elements.
    fn place(&self, index: usize) -> usize {
        let at = self.head + index;
        at.checked_sub(self.places.len()).unwrap_or(at)
    }

    /// Adds an element as the youngest one.
    ///
    /// # Errors
    ///
    /// The element itself if there is no place for it.
    pub(crate) fn push(&mut self, element: T) -> Result<(), T> {
        let at = self.place(self.len);
        if self.len == self.places.len() {
            return Err(element);
        }
        self.set(at, element);
        self.len += 1;
        Ok(())
    }

    /// Adds an element as the oldest one.
    ///
    /// # Errors
    ///
    /// The element itself if there is no place for it.
    pub(crate) fn push_oldest(&mut self, element: T) -> Result<(), T> {
        let places = self.places.len();
        if self.len == places {
            return Err(element);
        }
        self.head = self.head.checked_sub(1).unwrap_or(places - 1);
        self.set(self.head, element);
        self.len += 1;
        Ok(())
    }

    /// Takes the oldest element out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let element = self.places.get_mut(self.head)?.take()?;
        self.head = self.place(1);
        self.len -= 1;
        Some(element)
    }

    /// Takes the element `index` out. Those that are older move by a place.
    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        if index >= self.len {
            return None;
        }
        for younger in (1..=index).rev() {
            let (to, from) = (self.place(younger), self.place(younger - 1));
            self.places.swap(to, from);
        }
        self.pop()
    }

    /// Returns the oldest element.
    pub(crate) fn oldest(&self) -> Option<&T> {
        self.places.get(self.head)?.as_ref()
    }

    /// Returns the element `index`, as [`Self::remove`] counts.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        if index >= self.len {
            return None;
        }
        self.places.get(self.place(index))?.as_ref()
    }

    /// Returns the oldest element, to be changed.
    pub(crate) fn oldest_mut(&mut self) -> Option<&mut T> {
        self.places.get_mut(self.head)?.as_mut()
    }

    /// Returns the elements, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let (first, second) = self.places.split_at(self.head);
        Iterator::chain(second.iter(), first).flatten()
    }

    /// Returns the elements, the oldest first, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (first, second) = self.places.split_at_mut(self.head);
        Iterator::chain(second.iter_mut(), first).flatten()
    }

    /// Moves all elements into `larger`, which is empty and has at least as many places, and takes
    /// its places for this queue's, which are in `larger` then.
    pub(crate) fn grow_into(&mut self, larger: &mut Self) {
        while let Some(element) = self.pop() {
            // There is place for it.
            let _ = larger.push(element);
        }
        core::mem::swap(self, larger);
    }

    /// Fills a place.
    fn set(&mut self, at: usize, element: T) {
        if let Some(place) = self.places.get_mut(at) {
            *place = Some(element);
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_kext_fifo)]
mod tests {
    use super::*;

    /// Does what each digit of `steps` in base 4 says, with a queue and with a plain list, and
    /// compares them after each.
    fn compare(places: usize, steps: u32, count: u32) -> Result {
        let mut queue = Fifo::with_capacity(places)?;
        let mut list = KVec::new();
        for step in 0..count {
            let has_place = list.len() < places;
            match (steps >> (2 * step)) % 4 {
                0 => {
                    assert_eq!(queue.push(step).is_ok(), has_place);
                    if has_place {
                        list.push(step, GFP_KERNEL)?;
                    }
                }
                1 => {
                    assert_eq!(queue.push_oldest(step).is_ok(), has_place);
                    if has_place {
                        list.push(step, GFP_KERNEL)?;
                        list.rotate_right(1);
                    }
                }
                2 => assert_eq!(queue.pop(), list.remove(0).ok()),
                _ => assert_eq!(queue.remove(1), list.remove(1).ok()),
            }
            assert_eq!(queue.len(), list.len());
            assert_eq!(queue.is_empty(), list.is_empty());
            assert_eq!(queue.oldest(), list.first());
            assert!(queue.iter().eq(&list));
        }
        let mut larger = Fifo::with_capacity(places + 2)?;
        queue.grow_into(&mut larger);
        assert_eq!(queue.capacity(), places + 2);
        assert!(larger.is_empty() && queue.iter().eq(&list));
        Ok(())
    }

    #[test]
    fn all_sequences_of_four_steps_are_those_of_a_list() -> Result {
        const STEPS: u32 = 4;
        for places in 0..4 {
            for steps in 0..1 << (2 * STEPS) {
                compare(places, steps, STEPS)?;
            }
        }
        Ok(())
    }

    #[test]
    fn what_is_in_a_queue_goes_with_it() -> Result {
        let element = Arc::new(0, GFP_KERNEL)?;
        let mut queue = Fifo::with_capacity(2)?;
        assert!(queue.push(element.clone()).is_ok());
        drop(queue);
        assert!(Arc::into_unique_or_drop(element).is_some());
        Ok(())
    }
}
