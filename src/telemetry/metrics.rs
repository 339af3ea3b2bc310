//! Every metric of the gateway, in one place.
//!
//! Labels come from closed lists and from the pool's public labels, so the number of series is
//! bounded whatever clients send. Series of the request path are looked up once and kept.

use std::{array, sync::OnceLock, time::Duration};

use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder, core::Collector,
};

use super::labels::{
    AccountState, AttemptOutcome, CodeClass, FailoverReason, LabelSet, Phase, Reconciled,
    RefreshResult, ReplayRefusal, Route, Selected, TokenKind, Transport,
};
use crate::domain::select::Reason;

const NAMESPACE: &str = "codex_edge";

/// From a local answer (1 ms) to a long turn (30 min).
const REQUEST_SECONDS: &[f64] =
    &[0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// From a local answer (1 ms) to a slow first token (2 min).
const FIRST_BYTE_SECONDS: &[f64] =
    &[0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Our own work: from microseconds to a refresh over the network.
const OVERHEAD_SECONDS: &[f64] =
    &[0.000_005, 0.000_02, 0.000_1, 0.000_5, 0.002, 0.01, 0.05, 0.25, 1.0, 5.0, 30.0];

/// From a commit to memory to a tired disk.
const STORE_SECONDS: &[f64] = &[0.000_1, 0.000_5, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0];

const REQUEST_SERIES: usize = Route::COUNT * Transport::COUNT * CodeClass::COUNT;

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    request_cells: [OnceLock<IntCounter>; REQUEST_SERIES],
    request_duration: [Histogram; Route::COUNT],
    first_byte: [Histogram; Route::COUNT],
    overhead: [Histogram; Phase::COUNT],
    attempts: [IntCounter; AttemptOutcome::COUNT],
    selections: [IntCounter; Selected::COUNT],
    failovers: [IntCounter; FailoverReason::COUNT],
    replays_refused: [IntCounter; ReplayRefusal::COUNT],
    tokens: [IntCounter; TokenKind::COUNT],
    reconciliations: [IntCounter; Reconciled::COUNT],
    refreshes: [IntCounter; RefreshResult::COUNT],
    accounts: [IntGauge; AccountState::COUNT],
    account_turns: IntGaugeVec,
    account_cooldown: IntGaugeVec,
    /// Turns that hold an account.
    pub active_turns: IntGauge,
    /// Open WebSockets of clients.
    pub active_sockets: IntGauge,
    /// Credential files that cannot be used as they are.
    pub credential_file_problems: IntGauge,
    /// Jobs that wait for the database's writer.
    pub store_queue_depth: IntGauge,
    store_write: Histogram,
}

/// One account as the scrape shows it.
#[derive(Clone, Copy, Debug)]
pub struct AccountReading<'a> {
    /// The public label.
    pub label: &'a str,
    pub state: AccountState,
    pub active_turns: i64,
    /// Seconds since the Unix epoch; 0 where there is no cooldown.
    pub cooldown_until: i64,
}

// === impl Metrics ===

impl Metrics {
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let make = Maker { registry: &registry };
        register_surroundings(&make)?;
        Ok(Self {
            requests: make.counters(
                "requests_total",
                "Requests answered, by route, transport and class of the status",
                &["route", "transport", "code"],
            )?,
            request_cells: [const { OnceLock::new() }; REQUEST_SERIES],
            request_duration: make.histogram_set::<Route, _>(
                ("request_duration_seconds", "From a request's head to the end of its answer"),
                ("route", REQUEST_SECONDS),
            )?,
            first_byte: make.histogram_set::<Route, _>(
                ("time_to_first_byte_seconds", "From a request's head to its answer's first byte"),
                ("route", FIRST_BYTE_SECONDS),
            )?,
            overhead: make.histogram_set::<Phase, _>(
                ("overhead_seconds", "The gateway's own work in a request"),
                ("phase", OVERHEAD_SECONDS),
            )?,
            attempts: make.counter_set::<AttemptOutcome, _>(
                ("upstream_attempts_total", "Attempts with an account, by their end"),
                "outcome",
            )?,
            selections: make.counter_set::<Selected, _>(
                ("selections_total", "Accounts chosen for an attempt, by the reason"),
                "reason",
            )?,
            failovers: make.counter_set::<FailoverReason, _>(
                ("failovers_total", "Moves to another account before output"),
                "reason",
            )?,
            replays_refused: make.counter_set::<ReplayRefusal, _>(
                ("replays_refused_total", "Failed attempts that could not be repeated elsewhere"),
                "reason",
            )?,
            tokens: make.counter_set::<TokenKind, _>(
                ("tokens_total", "Tokens that upstream accounted for"),
                "kind",
            )?,
            reconciliations: make.counter_set::<Reconciled, _>(
                ("reconciliations_total", "Changes of the pool that came from credential files"),
                "change",
            )?,
            refreshes: make.counter_set::<RefreshResult, _>(
                ("refreshes_total", "Refreshes of an account's tokens, by their end"),
                "result",
            )?,
            accounts: make.account_states()?,
            account_turns: make
                .account_gauge("account_active_turns", "Turns that hold this account")?,
            account_cooldown: make.account_gauge(
                "account_cooldown_until_seconds",
                "When this account's cooldown ends, Unix time; absent without one",
            )?,
            active_turns: make.gauge("active_turns", "Turns that hold an account")?,
            active_sockets: make.gauge("active_sockets", "Open WebSockets of clients")?,
            credential_file_problems: make
                .gauge("credential_file_problems", "Credential files that cannot be used")?,
            store_queue_depth: make
                .gauge("store_queue_depth", "Jobs that wait for the database's writer")?,
            store_write: make.store_write()?,
            registry,
        })
    }

    /// Counts an answered request; status 0 where the client left before there was one.
    pub fn request(&self, route: Route, transport: Transport, status: u16) {
        let code = CodeClass::of(status);
        let row = route.index() * Transport::COUNT + transport.index();
        let cell = &self.request_cells[row * CodeClass::COUNT + code.index()];
        cell.get_or_init(|| {
            let values = [route.label(), transport.label(), code.label()];
            self.requests.with_label_values(&values)
        })
        .inc();
    }

    pub fn request_duration(&self, route: Route, taken: Duration) {
        self.request_duration[route.index()].observe(taken.as_secs_f64());
    }

    pub fn time_to_first_byte(&self, route: Route, taken: Duration) {
        self.first_byte[route.index()].observe(taken.as_secs_f64());
    }

    pub fn overhead(&self, phase: Phase, taken: Duration) {
        self.overhead[phase.index()].observe(taken.as_secs_f64());
    }

    pub fn attempt(&self, outcome: AttemptOutcome) {
        self.attempts[outcome.index()].inc();
    }

    pub fn selection(&self, reason: Reason) {
        self.selections[Selected::from(reason).index()].inc();
    }

    pub fn failover(&self, reason: FailoverReason) {
        self.failovers[reason.index()].inc();
    }

    pub fn replay_refused(&self, reason: ReplayRefusal) {
        self.replays_refused[reason.index()].inc();
    }

    pub fn reconciled(&self, change: Reconciled) {
        self.reconciliations[change.index()].inc();
    }

    pub fn refreshed(&self, result: RefreshResult) {
        self.refreshes[result.index()].inc();
    }

    pub fn tokens(&self, kind: TokenKind, count: u64) {
        self.tokens[kind.index()].inc_by(count);
    }

    pub fn store_write(&self, taken: Duration) {
        self.store_write.observe(taken.as_secs_f64());
    }

    /// Shows the pool as it is; accounts that are not in `readings` vanish from the scrape.
    pub fn set_accounts<'a>(&self, readings: impl IntoIterator<Item = AccountReading<'a>>) {
        let mut states = [0_i64; AccountState::COUNT];
        self.account_turns.reset();
        self.account_cooldown.reset();
        for it in readings {
            states[it.state.index()] += 1;
            self.account_turns.with_label_values(&[it.label]).set(it.active_turns);
            if it.cooldown_until > 0 {
                self.account_cooldown.with_label_values(&[it.label]).set(it.cooldown_until);
            }
        }
        self.accounts.iter().zip(states).for_each(|(gauge, count)| gauge.set(count));
    }

    /// The scrape in Prometheus' text format.
    pub fn encode(&self) -> String {
        let mut text = Vec::new();
        match TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            Ok(()) => String::from_utf8(text).unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "the metrics could not be written");
                String::new()
            }
        }
    }
}

/// `build_info` and the process's own numbers.
fn register_surroundings(make: &Maker<'_>) -> prometheus::Result<()> {
    let revision = option_env!("CODEX_EDGE_REVISION").unwrap_or("unknown");
    let opts = make
        .opts("build_info", "The running program; always 1")
        .const_label("version", env!("CARGO_PKG_VERSION"))
        .const_label("revision", revision);
    let build = make.registered(Gauge::with_opts(opts)?)?;
    build.set(1.0);
    #[cfg(target_os = "linux")]
    make.registry
        .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
    Ok(())
}

/// Makes metrics and registers them.
struct Maker<'a> {
    registry: &'a Registry,
}

// === impl Maker ===

impl Maker<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).namespace(NAMESPACE)
    }

    fn registered<T: Collector + Clone + 'static>(&self, metric: T) -> prometheus::Result<T> {
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntCounterVec> {
        self.registered(IntCounterVec::new(self.opts(name, help), labels)?)
    }

    /// One counter for every value of a label, all of them there from the start.
    fn counter_set<T: LabelSet, const N: usize>(
        &self,
        (name, help): (&str, &str),
        label: &str,
    ) -> prometheus::Result<[IntCounter; N]> {
        let family = self.counters(name, help, &[label])?;
        Ok(array::from_fn(|at| family.with_label_values(&[T::ALL[at].label()])))
    }

    fn histogram_set<T: LabelSet, const N: usize>(
        &self,
        (name, help): (&str, &str),
        (label, buckets): (&str, &[f64]),
    ) -> prometheus::Result<[Histogram; N]> {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(buckets.to_vec());
        let family = self.registered(HistogramVec::new(opts, &[label])?)?;
        Ok(array::from_fn(|at| family.with_label_values(&[T::ALL[at].label()])))
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.registered(IntGauge::with_opts(self.opts(name, help))?)
    }

    fn account_gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGaugeVec> {
        self.registered(IntGaugeVec::new(self.opts(name, help), &["account"])?)
    }

    fn account_states(&self) -> prometheus::Result<[IntGauge; AccountState::COUNT]> {
        let opts = self.opts("accounts", "Accounts in the pool by state");
        let family = self.registered(IntGaugeVec::new(opts, &["state"])?)?;
        Ok(array::from_fn(|at| family.with_label_values(&[AccountState::ALL[at].label()])))
    }

    fn store_write(&self) -> prometheus::Result<Histogram> {
        let opts = self.opts("store_write_seconds", "Duration of one job of the database's writer");
        let opts = HistogramOpts::from(opts).buckets(STORE_SECONDS.to_vec());
        self.registered(Histogram::with_opts(opts)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_shows_what_was_counted_under_its_labels() {
        let metrics = Metrics::new().unwrap();
        metrics.request(Route::Responses, Transport::Sse, 200);
        metrics.request(Route::Responses, Transport::Sse, 204);
        metrics.request(Route::Models, Transport::Http, 429);
        metrics.request(Route::Responses, Transport::Sse, 0);
        metrics.attempt(AttemptOutcome::Quota);
        metrics.failover(FailoverReason::Quota);
        metrics.tokens(TokenKind::Output, 42);
        metrics.overhead(Phase::Admit, Duration::from_micros(30));
        let text = metrics.encode();
        for line in [
            r#"codex_edge_requests_total{code="2xx",route="responses",transport="sse"} 2"#,
            r#"codex_edge_requests_total{code="4xx",route="models",transport="http"} 1"#,
            r#"codex_edge_requests_total{code="none",route="responses",transport="sse"} 1"#,
            r#"codex_edge_upstream_attempts_total{outcome="quota"} 1"#,
            r#"codex_edge_failovers_total{reason="quota"} 1"#,
            r#"codex_edge_tokens_total{kind="output"} 42"#,
            r#"codex_edge_overhead_seconds_count{phase="admit"} 1"#,
            r#"codex_edge_replays_refused_total{reason="output_begun"} 0"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
        }
        assert!(text.contains("codex_edge_build_info{") && text.contains("process_"), "{text}");
    }

    #[test]
    fn an_account_that_left_the_pool_leaves_the_scrape() {
        let metrics = Metrics::new().unwrap();
        let reading = |label, state, cooldown_until| AccountReading {
            label,
            state,
            active_turns: 1,
            cooldown_until,
        };
        metrics.set_accounts([
            reading("paaaaaa", AccountState::Ready, 0),
            reading("pbbbbbb", AccountState::Cooling, 1_800_000_000),
        ]);
        let text = metrics.encode();
        assert!(text.contains(r#"account_cooldown_until_seconds{account="pbbbbbb"} 1800000000"#));
        assert!(text.contains(r#"codex_edge_accounts{state="cooling"} 1"#));
        assert!(!text.contains(r#"account_cooldown_until_seconds{account="paaaaaa"}"#));
        metrics.set_accounts([reading("paaaaaa", AccountState::Ready, 0)]);
        let text = metrics.encode();
        assert!(!text.contains("pbbbbbb"));
        assert!(text.contains(r#"codex_edge_accounts{state="cooling"} 0"#));
    }
}
