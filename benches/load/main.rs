//! The gateway under load, side by side with what it competes with.
//!
//! `cargo bench --bench load [-- --quick | --seconds N | --only PART]`. Every server runs in a process of its
//! own, so that its CPU time and its memory can be told apart; the load comes from this process.
//! Only loopback is touched, and every child ends with this process, however that ends.

mod bare;
mod churn;
mod client;
mod memory;
mod process;
mod report;
mod roles;

use std::{env, error::Error, process::ExitCode, time::Duration};

use client::{Measured, Target};
use process::Server;
use tempfile::TempDir;

/// As in the product's binary.
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Fault = Box<dyn Error + Send + Sync>;

/// Requests at a time.
const CONCURRENCIES: [usize; 3] = [1, 32, 256];

/// Every figure is measured in so many turns with the others, so that a disturbance from outside
/// hits all servers alike.
const ROUNDS: u32 = 2;

/// For both ends of some thousand connections.
const FILES_MAX: u64 = 20_000;

/// What is measured how long.
struct Plan {
    /// For each server at each concurrency.
    time: Duration,
    idle_streams: usize,
    only: Option<Part>,
}

/// What can be measured by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Throughput,
    Memory,
    Churn,
}

/// What the load goes to, with the name in the table.
struct Contender {
    name: &'static str,
    server: Server,
    target: Target,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((first, rest)) if first.starts_with("serve-") => roles::serve(first, rest),
        _ => Plan::parse(&arguments).and_then(|plan| run(&plan)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(plan: &Plan) -> Result<(), Fault> {
    // Children inherit it.
    let files = rlimit::increase_nofile_limit(FILES_MAX)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if plan.wants(Part::Throughput) {
            let rows = throughput(plan).await?;
            report::throughput(&rows);
            report::throughput_targets(&rows);
        }
        if plan.wants(Part::Memory) {
            let streams = plan.idle_streams.min(usize::try_from(files / 2)?.saturating_sub(200));
            let idle = memory::measure(streams).await?;
            report::memory(streams, &idle);
            report::memory_targets(&idle);
        }
        if plan.wants(Part::Churn) {
            let churned = churn::measure(plan.time * 6).await?;
            report::churn(&churned);
            report::churn_targets(&churned);
        }
        Ok(())
    })
}

/// The rows of the table, by concurrency, then by server.
async fn throughput(plan: &Plan) -> Result<Vec<(usize, &'static str, Measured)>, Fault> {
    let folder = tempfile::tempdir()?;
    let sim = Server::start("serve-sim", &[])?;
    let contenders = contenders(sim, &folder)?;
    let mut rows = Vec::new();
    for concurrency in CONCURRENCIES {
        let mut measured: Vec<Measured> = contenders.iter().map(|_| Measured::default()).collect();
        for _ in 0..ROUNDS {
            for (contender, sum) in contenders.iter().zip(&mut measured) {
                let Contender { server, target, .. } = contender;
                sum.add(client::press(server, target, concurrency, plan.time / ROUNDS).await?);
            }
        }
        rows.extend(contenders.iter().zip(measured).map(|(it, sum)| (concurrency, it.name, sum)));
    }
    Ok(rows)
}

fn contenders(sim: Server, folder: &TempDir) -> Result<Vec<Contender>, Fault> {
    let upstream = sim.address.to_string();
    let nginx_folder = folder.path().join("nginx");
    let bare = Server::start("serve-bare", &[upstream.as_ref()])?;
    let gateways = [
        Contender::gateway("gateway", "serve-gateway", &upstream, folder)?,
        Contender::gateway("gateway, h2 up", "serve-gateway-h2c", &upstream, folder)?,
    ];
    let mut contenders =
        vec![Contender::upstream("direct", sim)?, Contender::upstream("bare pingora", bare)?];
    match Server::start("serve-nginx", &[upstream.as_ref(), nginx_folder.as_os_str()]) {
        Ok(nginx) => contenders.push(Contender::upstream("nginx", nginx)?),
        Err(error) => {
            println!("nginx is left out ({error}); to have it: apt-get install nginx-light");
        }
    }
    contenders.extend(gateways);
    Ok(contenders)
}

// === impl Plan ===

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self, Fault> {
        let mut plan = Self { time: Duration::from_secs(4), idle_streams: 2_000, only: None };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                // From cargo.
                "--bench" => {}
                "--quick" => {
                    plan.time = Duration::from_millis(500);
                    plan.idle_streams = 200;
                }
                "--seconds" => {
                    let seconds = arguments.next().and_then(|it| it.parse().ok());
                    let seconds: u16 = seconds.ok_or("--seconds wants a whole number")?;
                    plan.time = Duration::from_secs(seconds.clamp(1, 60).into());
                }
                "--only" => {
                    plan.only = Some(match arguments.next().map(String::as_str) {
                        Some("throughput") => Part::Throughput,
                        Some("memory") => Part::Memory,
                        Some("churn") => Part::Churn,
                        _ => return Err("--only wants throughput, memory or churn".into()),
                    });
                }
                other => {
                    let known = "--quick, --seconds N, --only PART";
                    return Err(format!("what is {other}? Known: {known}").into());
                }
            }
        }
        Ok(plan)
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

// === impl Contender ===

impl Contender {
    fn upstream(name: &'static str, server: Server) -> Result<Self, Fault> {
        let target = Target::upstream(&server)?;
        Ok(Self { name, server, target })
    }

    fn gateway(
        name: &'static str,
        role: &str,
        upstream: &str,
        folder: &TempDir,
    ) -> Result<Self, Fault> {
        let own_folder = folder.path().join(role);
        let server = Server::start(role, &[upstream.as_ref(), own_folder.as_os_str()])?;
        let target = Target::gateway(&server)?;
        Ok(Self { name, server, target })
    }
}
