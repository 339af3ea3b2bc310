//! The tables, and whether the gateway is as good as it has to be.

use std::time::Duration;

use super::{churn::Churned, client::Measured, memory::Idle, roles::CROWD};

pub(crate) type Row = (usize, &'static str, Measured);

pub(crate) fn throughput(rows: &[Row]) {
    println!(
        "\n{:>4} {:<14} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}",
        "c", "server", "req/s", "cpu ms", "p50 ms", "p99 ms", "ttfb p50", "ttfb p99"
    );
    let mut last = 0;
    for (concurrency, name, measured) in rows {
        if *concurrency != last {
            println!("{}", "-".repeat(77));
            last = *concurrency;
        }
        let failed = match measured.failed {
            0 => String::new(),
            failed => format!("  {failed} failed"),
        };
        println!(
            "{:>4} {:<14} {:>8.0} {:>8.3} {:>8.3} {:>8.3} {:>9.3} {:>9.3}{failed}",
            concurrency,
            name,
            measured.per_second(),
            measured.cpu_ms_per_request(),
            quantile_ms(&measured.totals, 0.5),
            quantile_ms(&measured.totals, 0.99),
            quantile_ms(&measured.firsts, 0.5),
            quantile_ms(&measured.firsts, 0.99),
        );
    }
    println!("cpu ms: CPU time of the server's process per request");
}

pub(crate) fn memory(streams: usize, rows: &[Idle]) {
    println!("\nresident memory with {streams} open idle streams");
    for row in rows {
        println!(
            "     {:<14} {:>6.1} MiB, {:>6.1} MiB before, {:>6.1} KiB per stream",
            row.name,
            row.open_kib as f64 / 1024.0,
            row.before_kib as f64 / 1024.0,
            row.kib_per_stream
        );
    }
}

pub(crate) fn churn(churned: &Churned) {
    println!(
        "\n{CROWD} accounts, a file each; {:.0} changes of files per second",
        churned.changes_per_second
    );
    let scenes = [
        ("at rest", &churned.still),
        ("elsewhere", &churned.elsewhere),
        ("changing", &churned.changing),
    ];
    for (name, measured) in scenes {
        println!(
            "     {name:<14} {:>8.0} req/s {:>8.3} cpu ms {:>8.3} p50 ms {:>8.3} p99 ms  {} failed",
            measured.per_second(),
            measured.cpu_ms_per_request(),
            quantile_ms(&measured.totals, 0.5),
            quantile_ms(&measured.totals, 0.99),
            measured.failed,
        );
    }
}

pub(crate) fn throughput_targets(rows: &[Row]) {
    let find = |concurrency, name| {
        rows.iter().find(|row| row.0 == concurrency && row.1 == name).map(|row| &row.2)
    };
    if let (Some(gateway), Some(bare)) = (find(32, "gateway"), find(32, "bare pingora")) {
        let share = 100.0 * gateway.per_second() / bare.per_second().max(f64::EPSILON);
        verdict(share >= 85.0, &format!("{share:.0} % of bare's req/s at c=32 (at least 85)"));
        let cpu = gateway.cpu_ms_per_request();
        verdict(cpu <= 0.25, &format!("{cpu:.3} ms CPU per request at c=32 (at most 0.25)"));
    }
    if let (Some(gateway), Some(direct)) = (find(1, "gateway"), find(1, "direct")) {
        let more = quantile_ms(&gateway.totals, 0.5) - quantile_ms(&direct.totals, 0.5);
        verdict(more <= 0.5, &format!("{more:.3} ms more than direct, p50 at c=1 (at most 0.5)"));
    }
}

pub(crate) fn memory_targets(idle: &[Idle]) {
    if let Some(gateway) = idle.iter().find(|row| row.name == "gateway") {
        let each = gateway.kib_per_stream;
        verdict(each <= 80.0, &format!("{each:.1} KiB per open idle stream (at most 80)"));
    }
}

pub(crate) fn churn_targets(churned: &Churned) {
    let p99 = |measured: &Measured| quantile_ms(&measured.totals, 0.99);
    let share = 100.0 * p99(&churned.changing) / p99(&churned.elsewhere).max(f64::EPSILON);
    let fine = share <= 110.0 && churned.changing.failed == 0;
    verdict(
        fine,
        &format!(
            "p99 while credential files change is {share:.0} % of that while others do (at most 110)"
        ),
    );
}

fn verdict(good: bool, what: &str) {
    println!("{:<6} {what}", if good { "ok" } else { "MISSED" });
}

fn quantile_ms(times: &[Duration], quantile: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() as f64 * quantile) as usize;
    sorted.get(place).or(sorted.last()).map_or(f64::NAN, |it| it.as_secs_f64() * 1e3)
}
