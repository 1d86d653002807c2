// SPDX-License-Identifier: GPL-2.0

//! How long it takes to write and to read a header, and to choose a payload format.

use std::{
    hint::black_box,
    time::Duration, //
};

use criterion::Criterion;
use rpcrdma_proto::workload::{
    choose,
    decode,
    Sample, //
};

fn main() {
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

    let mut group = criterion.benchmark_group("choose");
    for size in [512, 4096, 1 << 20] {
        group.bench_function(size.to_string(), |bencher| {
            bencher.iter(|| choose(black_box(size)));
        });
    }
    group.finish();
    criterion.final_summary();
}
