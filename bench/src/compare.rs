//! One scenario on one backend: both sides, in turns.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tempfile::TempDir;

use crate::client::{Client, Result, Yardstick};
use crate::measure::{self, Added, InDepth, Rest, Size};
use crate::ours::Ours;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::scratch::Scratch;
use crate::yardstick::memory::Memory;
use crate::yardstick::postgres::Postgres;
use crate::yardstick::rabbitmq::{Ahead, Classic, ClassicAhead, Quorum, RabbitMq};
use crate::yardstick::redis::Redis;
use crate::yardstick::sqlite::Sqlite;

/// Every backend that has a yardstick.
pub(crate) const BACKENDS: &[Backend] = &[
    backend::<Memory>(),
    backend::<Postgres>(),
    backend::<RabbitMq<Quorum>>(),
    backend::<RabbitMq<Ahead>>(),
    backend::<RabbitMq<Classic>>(),
    backend::<RabbitMq<ClassicAhead>>(),
    backend::<Redis>(),
    backend::<Sqlite>(),
];

/// A time that no scenario of default size comes close to.
pub(crate) const PATIENCE: Duration = Duration::from_mins(10);

/// Messages in a round of [`Scenario::FirstAfterIdle`]; each takes three seconds, whatever the backend.
const FIRSTS: usize = 2;

/// What the command line sets for every scenario.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) rounds: usize,
    /// `None`: the backend's own number.
    pub(crate) messages: Option<usize>,
    pub(crate) payload_bytes: usize,
    pub(crate) backlog: usize,
    pub(crate) in_flight: usize,
    pub(crate) scratch: Scratch,
}

impl Settings {
    fn size<Y: Yardstick>(&self, scenario: Scenario) -> Size {
        let messages = self.messages.unwrap_or_else(|| match scenario {
            Scenario::FirstAfterIdle => FIRSTS,
            _ => Y::messages(scenario),
        });
        Size { messages, payload_bytes: scenario.payload_bytes().unwrap_or(self.payload_bytes) }
    }
}

type Run<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// A backend with its yardstick, type-erased.
pub(crate) struct Backend {
    pub(crate) name: &'static str,
    /// The version of the server, if it reports one.
    pub(crate) server: for<'a> fn(&'a Settings) -> Run<'a, Option<String>>,
    pub(crate) compare: for<'a> fn(Scenario, &'a Settings) -> Run<'a, Report>,
    /// Runs the pushing process of [`Scenario::LatencyAcross`]: pushes to this URL, with the hand-written
    /// client or not.
    pub(crate) push_stamped: for<'a> fn(&'a str, bool, &'a Settings) -> Run<'a, ()>,
}

const fn backend<Y: Yardstick>() -> Backend {
    Backend {
        name: Y::NAME,
        server: |settings| Box::pin(server::<Y>(settings)),
        compare: |scenario, settings| Box::pin(compare::<Y>(scenario, settings)),
        push_stamped: |url, by_hand, settings| Box::pin(push_stamped::<Y>(url, by_hand, settings)),
    }
}

async fn server<Y: Yardstick>(settings: &Settings) -> Result<Option<String>> {
    let opened = Opened::<Ours>::new::<Y>(settings).await?;
    let version = opened.client.server_version().await?;
    opened.close::<Y>().await?;
    Ok(version.or_else(Y::server_version))
}

async fn compare<Y: Yardstick>(scenario: Scenario, settings: &Settings) -> Result<Report> {
    let report = Report::new(Y::NAME, scenario);
    match scenario {
        Scenario::LatencyAcross if !Y::ACROSS_PROCESSES => {
            Ok(report.skipped("nothing outside this process can reach the queue"))
        }
        Scenario::InFlight if !Y::COUNTS_HELD => {
            Ok(report.skipped("the server does not tell how many messages are held"))
        }
        Scenario::SettleThen if !Y::SETTLES_THEN => {
            Ok(report.skipped("only where a settlement and a push can be one transaction"))
        }
        Scenario::SettleConcurrent if !Y::ANSWERS_SETTLEMENTS => {
            Ok(report.skipped("settlements are sent and not answered; a drain shows what they cost"))
        }
        Scenario::DrainControlled if !Y::KEEPS_MORE => {
            Ok(report.skipped("the server has no place for what workers agree on"))
        }
        Scenario::Latency | Scenario::LatencyAcross | Scenario::FirstAfterIdle => {
            latencies::<Y>(scenario, settings, report).await
        }
        Scenario::Idle => idle::<Y>(settings, report).await,
        Scenario::Backlog => depth::<Y>(scenario, InDepth::Backlog(settings.backlog), settings, report).await,
        Scenario::InFlight => {
            depth::<Y>(scenario, InDepth::InFlight(settings.in_flight), settings, report).await
        }
        Scenario::DrainLedger => added::<Y>(scenario, Added::Ledger, settings, report).await,
        Scenario::DrainControlled => added::<Y>(scenario, Added::Control, settings, report).await,
        _ => rates::<Y>(scenario, settings, report).await,
    }
}

async fn rates<Y: Yardstick>(scenario: Scenario, settings: &Settings, report: Report) -> Result<Report> {
    let size = settings.size::<Y>(scenario);
    rate::<Ours, Y>(scenario, settings, size).await?;
    let warm_up = rate::<Y, Y>(scenario, settings, size).await?;
    let size = if settings.messages.is_some() { size } else { size.for_a_round(warm_up) };
    let (ours, theirs) = alternate(
        settings.rounds,
        async || rate::<Ours, Y>(scenario, settings, size).await,
        async || rate::<Y, Y>(scenario, settings, size).await,
    )
    .await?;
    Ok(report.rates(&ours, &theirs))
}

async fn rate<C: Client, Y: Yardstick>(scenario: Scenario, settings: &Settings, size: Size) -> Result<f64> {
    let opened = Opened::<C>::new::<Y>(settings).await?;
    let client = opened.client.clone();
    let rate = on_a_worker(async move { measure::rate(scenario, &client, size).await })
        .await
        .map_err(|error| format!("{}: {error}", C::SIDE))?;
    opened.close::<Y>().await?;
    Ok(rate)
}

async fn latencies<Y: Yardstick>(scenario: Scenario, settings: &Settings, report: Report) -> Result<Report> {
    let size = settings.size::<Y>(scenario);
    let (ours, theirs) = alternate(
        settings.rounds,
        async || latency::<Ours, Y>(scenario, settings, size, false).await,
        async || latency::<Y, Y>(scenario, settings, size, true).await,
    )
    .await?;
    Ok(report.latencies(&ours.concat(), &theirs.concat(), settings.rounds))
}

async fn latency<C: Client, Y: Yardstick>(
    scenario: Scenario,
    settings: &Settings,
    size: Size,
    by_hand: bool,
) -> Result<Vec<Duration>> {
    let opened = Opened::<C>::new::<Y>(settings).await?;
    let client = opened.client.clone();
    let latencies = if scenario == Scenario::LatencyAcross {
        let arguments = child_arguments::<Y>(&opened.url, size, by_hand);
        on_a_worker(async move { measure::across(&client, size, &arguments).await }).await?
    } else {
        let rest = if scenario == Scenario::FirstAfterIdle { Rest::Seconds } else { Rest::Moment };
        on_a_worker(async move { measure::in_process(&client, size, rest).await }).await?
    };
    opened.close::<Y>().await?;
    Ok(latencies)
}

/// Returns the arguments for the pushing process; `main` reads them back.
fn child_arguments<Y: Yardstick>(url: &str, size: Size, by_hand: bool) -> Vec<String> {
    let messages = format!("--messages={}", size.messages);
    let payload = format!("--payload={}", size.payload_bytes);
    let mut arguments =
        vec![format!("--backend={}", Y::NAME), "--scenario=latency-across".to_owned(), messages, payload];
    arguments.push(format!("--push-to={url}"));
    arguments.extend(by_hand.then(|| "--by-hand".to_owned()));
    arguments
}

async fn push_stamped<Y: Yardstick>(url: &str, by_hand: bool, settings: &Settings) -> Result<()> {
    let size = settings.size::<Y>(Scenario::LatencyAcross);
    if by_hand { push_stamped_by::<Y>(url, size).await } else { push_stamped_by::<Ours>(url, size).await }
}

async fn push_stamped_by<C: Client>(url: &str, size: Size) -> Result<()> {
    let client = C::open(url).await?;
    measure::push_stamped(&client, size).await?;
    client.close().await
}

async fn idle<Y: Yardstick>(settings: &Settings, report: Report) -> Result<Report> {
    let size = settings.size::<Y>(Scenario::Idle);
    let (ours, theirs) = alternate(
        settings.rounds,
        async || idle_round::<Ours, Y>(settings, size).await,
        async || idle_round::<Y, Y>(settings, size).await,
    )
    .await?;
    Ok(report.cpu(&ours, &theirs))
}

async fn idle_round<C: Client, Y: Yardstick>(settings: &Settings, size: Size) -> Result<f64> {
    let opened = Opened::<C>::new::<Y>(settings).await?;
    let share = measure::idle(&opened.client, size).await?;
    opened.close::<Y>().await?;
    Ok(share)
}

async fn depth<Y: Yardstick>(
    scenario: Scenario,
    depth: InDepth,
    settings: &Settings,
    report: Report,
) -> Result<Report> {
    let size = settings.size::<Y>(scenario);
    let shallow = Opened::<Ours>::new::<Y>(settings).await?;
    let deep = Opened::<Ours>::new::<Y>(settings).await?;
    let (empty, full) = (shallow.client.clone(), deep.client.clone());
    let (size, rounds) = ((size, settings.messages.is_some()), settings.rounds);
    let work = async move { measure::depth(&empty, &full, depth, size, rounds).await };
    let (empty_rates, deep_rates) = on_a_worker(work).await?;
    shallow.close::<Y>().await?;
    deep.close::<Y>().await?;
    Ok(report.depth(&empty_rates, &deep_rates))
}

async fn added<Y: Yardstick>(
    scenario: Scenario,
    added: Added,
    settings: &Settings,
    report: Report,
) -> Result<Report> {
    let size = settings.size::<Y>(scenario);
    drained::<Y>(Some(added), settings, size).await?;
    let warm_up = drained::<Y>(None, settings, size).await?;
    let size = if settings.messages.is_some() { size } else { size.for_a_round(warm_up) };
    let (with, without) = alternate(
        settings.rounds,
        async || drained::<Y>(Some(added), settings, size).await,
        async || drained::<Y>(None, settings, size).await,
    )
    .await?;
    let report = report.added(&with, &without);
    if Y::KEEPS_MORE {
        return Ok(report);
    }
    let version = server::<Postgres>(settings).await?.unwrap_or_default();
    Ok(report.beside(format!("{} {version}", Postgres::NAME)))
}

async fn drained<Y: Yardstick>(added: Option<Added>, settings: &Settings, size: Size) -> Result<f64> {
    let directory = settings.scratch.directory()?;
    let url = Y::place(directory.path()).await?;
    let is_beside = added == Some(Added::Ledger) && !Y::KEEPS_MORE;
    let ledger = if is_beside { Some(Postgres::place(directory.path()).await?) } else { None };
    let (of_queue, of_ledger) = (url.clone(), ledger.clone());
    let work = async move { measure::drained(&of_queue, of_ledger.as_deref(), added, size).await };
    let rate = on_a_worker(work).await?;
    Y::clear(&url).await?;
    if let Some(ledger) = ledger {
        Postgres::clear(&ledger).await?;
    }
    Ok(rate)
}

/// Runs a scenario where an application's tasks run too. On the thread that blocks on the runtime, every
/// wake-up would be a switch between threads.
async fn on_a_worker<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work).await?
}

/// A client connected to its own place, which is removed with it.
struct Opened<C> {
    client: C,
    url: String,
    _directory: TempDir,
}

impl<C: Client> Opened<C> {
    async fn new<Y: Yardstick>(settings: &Settings) -> Result<Self> {
        let directory = settings.scratch.directory()?;
        let url = Y::place(directory.path()).await?;
        Ok(Self { client: C::open(&url).await?, url, _directory: directory })
    }

    async fn close<Y: Yardstick>(self) -> Result<()> {
        self.client.close().await?;
        Y::clear(&self.url).await
    }
}

/// Runs rounds of both sides in turns. Each side goes first in every other round, so that neither always
/// profits from what the other has warmed up, or suffers from what it left to be flushed.
async fn alternate<T>(
    rounds: usize,
    mut ours: impl AsyncFnMut() -> Result<T>,
    mut theirs: impl AsyncFnMut() -> Result<T>,
) -> Result<(Vec<T>, Vec<T>)> {
    let (mut of_ours, mut of_theirs) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    for round in 0..rounds {
        if round % 2 == 0 {
            of_ours.push(ours().await?);
            of_theirs.push(theirs().await?);
        } else {
            of_theirs.push(theirs().await?);
            of_ours.push(ours().await?);
        }
    }
    Ok((of_ours, of_theirs))
}
