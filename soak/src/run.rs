//! One run: work and faults side by side, then rest, then the account.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::account::Account;
use crate::actors::{self, PARTITION};
use crate::backends::{Backend, Result};
use crate::chaos::{self, Faults};
use crate::control::Control;
use crate::open::Places;
use crate::site::Site;
use crate::survey::{drain_dead_letters, keeping, survey};

const PUSHERS: u64 = 2;
const CONSUMERS: u64 = 3;
/// How long the queue may take to become empty after the last fault.
const PATIENCE: Duration = Duration::from_mins(2);
/// A queue that has delivered nothing for this long is empty: whatever was held or delayed has come back by
/// then.
const QUIET: Duration = Duration::from_secs(12);

/// What to soak, and how.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    backend: Backend,
    /// How long faults happen
    #[arg(default_value_t = 10.0)]
    minutes: f64,
    /// Repeats the random choices of an earlier run
    #[arg(default_value_t = fastrand::u64(..1_000_000))]
    seed: u64,
    /// Keeps the ends of tasks, and accounts for each
    #[arg(long)]
    ledger: bool,
    /// Also runs worker processes that register, share a limit and run a schedule, and disrupts them too
    #[arg(long)]
    control: bool,
    /// What keeps ends and control entries for RabbitMQ and SQS: a server of its own, which is disrupted too, or a file
    #[arg(long, value_name = "STORE", default_value = "postgres")]
    store: Backend,
}

/// What happened to the servers.
struct Happened {
    queue: Faults,
    store: Faults,
}

/// Returns whether the account is right.
pub(crate) async fn soak(arguments: &Arguments) -> Result<bool> {
    let Arguments { backend, seed, minutes, ledger, store, .. } = *arguments;
    let Some(site) = Site::start(backend).await? else { return Ok(false) };
    let has_store = backend.needs_store() && (ledger || arguments.control);
    let store =
        if has_store { Some(Site::start(store).await?.ok_or("the store is not installed")?) } else { None };
    let places = |url: fn(&Site) -> &str| Places {
        url: url(&site).to_owned(),
        store_url: store.as_ref().map(|store| url(store).to_owned()),
        ledger,
    };
    let (through, direct) = (places(Site::url), places(Site::direct_url));
    let first = direct.open_to_look().await?;
    first.init().await?;
    let account = Arc::new(Account::new(first.capabilities().moves));
    first.close().await?;
    let mut control = None;
    if arguments.control {
        control = Some(Control::start(through.clone(), direct.clone()).await?);
    }

    let actors = Actors::start(&through, &account, seed).await?;
    let until = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let rng = |number: u64| fastrand::Rng::with_seed(seed.wrapping_add(number));
    let work_of_processes = async {
        let Some(control) = &mut control else { return Ok(()) };
        control.disrupt(through.open().await?, rng(2), until).await
    };
    let at_store = async {
        let Some(store) = &store else { return Ok(Faults::default()) };
        chaos::inject(store, rng(1), until).await
    };
    let (queue, store_faults, ()) =
        tokio::try_join!(chaos::inject(&site, rng(0), until), at_store, work_of_processes)?;
    let happened = Happened { queue, store: store_faults };
    let is_empty = actors.end(&account).await;

    // Opened now, because the earlier connections are to servers that were killed.
    let last = direct.open_to_look().await?;
    let mut violations = Vec::new();
    let mut report = report(arguments, &site, store.as_ref(), &happened);
    if ledger {
        let (found, wrong) = survey(&last, PARTITION).await?;
        report.insert("ledger".to_owned(), found.totals());
        account.close(found.dead.clone());
        violations.extend(wrong.into_iter().chain(account.ledger_violations(&found, keeping(&last))));
    } else {
        account.close(drain_dead_letters(&last, PARTITION).await?);
    }
    violations.extend(account.violations(is_empty, last.capabilities()));
    if let Some(control) = control {
        let outcome = control.close().await?;
        report.insert("control".to_owned(), outcome.report);
        violations.extend(outcome.violations);
    }
    report.insert("account".to_owned(), account.totals());
    report.insert("verified".to_owned(), violations.is_empty().into());
    report.insert("violations".to_owned(), violations.clone().into());
    println!("{:#}", Value::Object(report));
    Ok(violations.is_empty())
}

/// The pushers and consumers in this process.
struct Actors {
    pushers: JoinSet<()>,
    consumers: JoinSet<()>,
    stop: CancellationToken,
    drained: CancellationToken,
}

impl Actors {
    async fn start(places: &Places, account: &Arc<Account>, seed: u64) -> Result<Self> {
        let (stop, drained) = (CancellationToken::new(), CancellationToken::new());
        let (mut pushers, mut consumers) = (JoinSet::new(), JoinSet::new());
        for number in 0..PUSHERS {
            let rng = fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number));
            pushers.spawn(actors::push(places.open().await?, account.clone(), rng, stop.clone()));
        }
        for number in 0..CONSUMERS {
            let rng = fastrand::Rng::with_seed(seed.wrapping_mul(37).wrapping_add(number));
            consumers.spawn(actors::consume(places.open().await?, account.clone(), rng, drained.clone()));
        }
        Ok(Self { pushers, consumers, stop, drained })
    }

    /// Stops the pushers, then the consumers when nothing comes any more. Returns whether it got that far.
    async fn end(mut self, account: &Account) -> bool {
        self.stop.cancel();
        while self.pushers.join_next().await.is_some() {}
        let (backlog, draining) = (account.unsettled(), Instant::now());
        let is_empty = wait_until_empty(account).await;
        eprintln!(
            "{backlog} messages were unsettled at the end of pushing; the end came {:?} later",
            draining.elapsed()
        );
        self.drained.cancel();
        while self.consumers.join_next().await.is_some() {}
        is_empty
    }
}

/// Returns whether the queue became empty. Not every backend counts held or delayed messages, but all of them
/// are delivered sooner or later.
async fn wait_until_empty(account: &Account) -> bool {
    let (began, deadline) = (Instant::now(), Instant::now() + PATIENCE);
    while Instant::now() < deadline {
        // The last fault may have kept everybody from working until now.
        let quiet = account.quiet().min(began.elapsed());
        if quiet >= QUIET {
            return true;
        }
        tokio::time::sleep(QUIET.saturating_sub(quiet)).await;
    }
    false
}

fn report(
    arguments: &Arguments,
    site: &Site,
    store: Option<&Site>,
    happened: &Happened,
) -> Map<String, Value> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let report = json!({
        "backend": arguments.backend.name(),
        "release": env!("CARGO_PKG_VERSION"),
        "server": site.version(),
        "hardware": format!("{cores} cores, {}", std::env::consts::ARCH),
        "minutes": arguments.minutes,
        "seed": arguments.seed,
        "pushers": PUSHERS,
        "consumers": CONSUMERS,
        "faults": happened.queue.counts(),
    });
    let Value::Object(mut report) = report else { return Map::new() };
    if let Some(store) = store {
        let store = json!({
            "backend": store.backend().name(),
            "server": store.version(),
            "faults": happened.store.counts(),
        });
        report.insert("store".to_owned(), store);
    }
    report
}
