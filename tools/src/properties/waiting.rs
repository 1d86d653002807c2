// SPDX-License-Identifier: GPL-2.0

//! Nobody waits for what is there: all orders of those who wait and those who give back.

use crate::waiting::{
    wait_unless,
    Waiting, //
};
use loom::{
    sync::{
        atomic::{
            AtomicBool,
            AtomicUsize,
            Ordering::{
                AcqRel,
                Relaxed, //
            }, //
        },
        Arc,
        Mutex, //
    },
    thread, //
};

/// Things that are lent out, and those who wait for one.
struct Shelf {
    /// The number of things.
    things: Mutex<usize>,
    /// As in the module: no order but that of the lock.
    waits: AtomicBool,
    /// How often those who wait were woken.
    woken: AtomicUsize,
}

impl Waiting for Shelf {
    fn set(&self) {
        self.waits.store(true, Relaxed);
    }

    fn wake(&self) {
        if self.waits.load(Relaxed) && self.waits.swap(false, AcqRel) {
            self.woken.fetch_add(1, Relaxed);
        }
    }
}

impl Shelf {
    fn with(things: usize) -> Arc<Self> {
        Arc::new(Self {
            things: Mutex::new(things),
            waits: AtomicBool::new(false),
            woken: AtomicUsize::new(0),
        })
    }

    fn take(&self) -> bool {
        let mut things = self.things.lock().unwrap();
        let found = *things > 0;
        *things -= usize::from(found);
        found
    }

    fn give_back(&self) {
        *self.things.lock().unwrap() += 1;
        self.wake();
    }

    /// Fails if somebody waits who nobody will wake, though there is something.
    fn check(&self) {
        let there = *self.things.lock().unwrap() > 0;
        assert!(
            !(there && self.waits.load(Relaxed)),
            "somebody waits for what is there"
        );
    }
}

/// One looks for a thing while another one gives one back; `wait` is what the first one does when
/// there is none.
fn one_of_each(wait: fn(&Shelf)) {
    loom::model(move || {
        let shelf = Shelf::with(0);
        let other = shelf.clone();
        let giver = thread::spawn(move || other.give_back());
        if !shelf.take() {
            wait(&shelf);
        }
        giver.join().unwrap();
        shelf.check();
    });
}

/// Looks at how many there are.
fn there(shelf: &Shelf) -> bool {
    *shelf.things.lock().unwrap() > 0
}

#[test]
fn whoever_waits_is_woken() {
    one_of_each(|shelf| {
        wait_unless(shelf, || there(shelf));
    });
}

/// The thing itself is taken by the second look, as a server does with Send buffers.
#[test]
fn whoever_takes_it_at_the_second_look_does_not_wait() {
    loom::model(|| {
        let shelf = Shelf::with(0);
        let other = shelf.clone();
        let giver = thread::spawn(move || other.give_back());
        let found = shelf.take() || wait_unless(&*shelf, || shelf.take());
        giver.join().unwrap();
        shelf.check();
        assert!(found || shelf.woken.load(Relaxed) == 1, "it was not woken");
    });
}

/// Two wait for a thing, of which one comes back. With three threads not all orders can be tried:
/// those with two switches that no thread has asked for.
#[test]
fn nobody_takes_a_wakeup_away() {
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(2);
    orders.check(|| {
        let shelf = Shelf::with(0);
        let look = |shelf: &Shelf| {
            if !shelf.take() {
                wait_unless(shelf, || there(shelf));
            }
        };
        let (one, other) = (shelf.clone(), shelf.clone());
        let giver = thread::spawn(move || one.give_back());
        let second = thread::spawn(move || look(&other));
        look(&shelf);
        giver.join().unwrap();
        second.join().unwrap();
        shelf.check();
    });
}

/// Without the second look a wakeup is lost, and it is seen here.
#[test]
#[should_panic(expected = "somebody waits for what is there")]
fn to_look_once_is_not_enough() {
    one_of_each(|shelf| shelf.set());
}

/// Nor is it enough to look again before the flag is set.
#[test]
#[should_panic(expected = "somebody waits for what is there")]
fn to_look_again_too_early_is_not_enough() {
    one_of_each(|shelf| {
        if !there(shelf) {
            shelf.set();
        }
    });
}
