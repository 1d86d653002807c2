// SPDX-License-Identifier: GPL-2.0

//! How long it takes to write and to read a header, to choose a payload format, and to have a
//! session agree to an RPC. None of that may allocate, which is checked first.

use std::{
    hint::black_box,
    time::Duration, //
};

use criterion::Criterion;
use rpcrdma_proto::workload::{
    choose,
    decode,
    decode_two,
    Conversation,
    Sample,
    SampleTwo, //
};

/// Counts what the core allocates in all that is measured here, prints it, and insists on nothing.
fn count_allocations() {
    let mut buf = [0; 512];
    let messages = Sample::ALL.map(Sample::message);
    let messages_two = SampleTwo::ALL.map(SampleTwo::message);
    let mut conversation = Conversation::default();
    let counted = allocation_counter::measure(|| {
        for sample in Sample::ALL {
            black_box(sample.encode(&mut buf));
        }
        for sample in SampleTwo::ALL {
            black_box(sample.encode(&mut buf));
        }
        for message in &messages {
            black_box(decode(message));
        }
        for message in &messages_two {
            black_box(decode_two(message));
        }
        black_box(choose(1 << 20));
        for _ in 0..1000 {
            black_box(conversation.rpc());
        }
    });
    println!("allocations: {}", counted.count_total);
    assert_eq!(counted.count_total, 0);
}

fn main() {
    count_allocations();
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(50)
        .nresamples(5_000)
        .without_plots()
        .configure_from_args();

    let mut group = criterion.benchmark_group("encode");
    for sample in Sample::ALL {
        let mut buf = [0; 512];
        group.bench_function(format!("{sample:?}"), |bencher| {
            bencher.iter(|| black_box(sample).encode(black_box(&mut buf)));
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("decode");
    for sample in Sample::ALL {
        let message = sample.message();
        group.bench_function(format!("{sample:?}"), |bencher| {
            bencher.iter(|| decode(black_box(&message)));
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("encode-two");
    for sample in SampleTwo::ALL {
        let mut buf = [0; 512];
        group.bench_function(format!("{sample:?}"), |bencher| {
            bencher.iter(|| black_box(sample).encode(black_box(&mut buf)));
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("decode-two");
    for sample in SampleTwo::ALL {
        let message = sample.message();
        group.bench_function(format!("{sample:?}"), |bencher| {
            bencher.iter(|| decode_two(black_box(&message)));
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("session");
    group.bench_function("rpc", |bencher| {
        let mut conversation = Conversation::default();
        bencher.iter(|| black_box(conversation.rpc()));
    });
    group.finish();

    let mut group = criterion.benchmark_group("choose");
    for size in [512, 4096, 1 << 20] {
        group.bench_function(size.to_string(), |bencher| {
            bencher.iter(|| choose(black_box(size)));
        });
    }
    group.finish();
    criterion.final_summary();
}
