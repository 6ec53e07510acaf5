//! Faults on top of any backend that processes share, so that a child process can have one too.

use std::process::ExitCode;
use std::sync::Arc;

use anyqueue::adapter::{Storage, async_trait};
use anyqueue::{Clock, Error, Result};
use anyqueue_conformance::{Case, Fault, Harness, Offer, Options, Outcome, cases, run_case, run_if_child};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::basic::Basic;
use crate::catalogue::quirk;
use crate::quirk::Quirk;
use crate::storage::Quirky;

/// A correct backend whose clients all have one fault, including those in child processes.
#[derive(Debug)]
pub struct Spoilt<H> {
    harness: Arc<H>,
    fault: Option<Fault>,
    name: String,
}

impl<H: Harness> Spoilt<H> {
    /// Wraps the backend of `harness` with a fault, or without one.
    pub fn new(harness: Arc<H>, fault: Option<Fault>) -> Self {
        let name = format!("{} ({})", harness.name(), name_of(fault));
        Self { harness, fault, name }
    }
}

fn name_of(fault: Option<Fault>) -> String {
    fault.map_or_else(|| "faultless".to_owned(), |fault| format!("{fault:?}"))
}

fn spoil(storage: Arc<dyn Storage>, fault: Option<Fault>) -> Arc<dyn Storage> {
    let basic = || Arc::new(Basic::new(Arc::clone(&storage), fault, Arc::default())) as Arc<dyn Quirk>;
    let quirk = fault.and_then(quirk).unwrap_or_else(basic);
    Arc::new(Quirky::new(storage, 0, Clock::system(), Clock::system(), quirk))
}

#[async_trait]
impl<H: Harness> Harness for Spoilt<H> {
    fn name(&self) -> &str {
        &self.name
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        Ok(spoil(self.harness.open(namespace).await?, self.fault))
    }

    /// The fault is in the first line.
    fn address(&self, namespace: &str) -> Option<String> {
        let address = self.harness.address(namespace)?;
        Some(format!("{}\n{address}", name_of(self.fault)))
    }

    async fn attach(address: &str) -> Result<Arc<dyn Storage>> {
        let (name, address) = address.split_once('\n').unwrap_or((address, ""));
        let fault = Fault::ALL.iter().copied().find(|fault| name_of(Some(*fault)) == name);
        if fault.is_none() && name != name_of(None) {
            return Err(Error::invalid(format!("there is no fault called {name}")));
        }
        Ok(spoil(H::attach(address).await?, fault))
    }

    async fn remove(&self, namespace: &str) {
        self.harness.remove(namespace).await;
    }
}

/// The `main` of a test target: runs each case with child processes on a correct backend, against the faulty
/// adapters that the case names, and against the backend without a fault. It tests the suite, not the
/// backend; any backend with a [`Harness::address`] will do.
pub fn main<H: Harness>(make: impl FnOnce() -> H) -> ExitCode {
    if let Some(code) = run_if_child::<Spoilt<H>>() {
        return code;
    }
    let args = Arguments::from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("the faulty adapters cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let _guard = runtime.enter();
    let harness = Arc::new(make());
    let pairs = cases::all().filter(|case| case.needs_offer(Offer::Children)).flat_map(|case| {
        std::iter::once(None).chain(case.kills.iter().copied().map(Some)).map(move |fault| (case, fault))
    });
    let trials = pairs
        .map(|(case, fault)| {
            let (spoilt, handle) = (Arc::new(Spoilt::new(harness.clone(), fault)), runtime.handle().clone());
            Trial::test(format!("{} on {}", case.id, name_of(fault)), move || {
                handle.block_on(judge(case, spoilt, fault))
            })
        })
        .collect();
    libtest_mimic::run(&args, trials).exit_code()
}

/// Judges a run: a correct backend must pass, a faulty one must fail with a clause of the contract.
async fn judge(case: &'static Case, harness: Arc<dyn Harness>, fault: Option<Fault>) -> Result<(), Failed> {
    let options = Options::new().with_children();
    let report = run_case(harness, case, &options).await;
    match (&report.outcome, fault) {
        // Where the correct backend does not declare a capability, only a faulty one claims to have it.
        (Outcome::Pass | Outcome::NotApplicable { .. }, None) | (Outcome::Fail(_), Some(_)) => Ok(()),
        (outcome, None) => Err(format!("a right backend does not pass: {outcome:?}").into()),
        (outcome, Some(fault)) => Err(format!("does not find that {} {outcome:?}", fault.what()).into()),
    }
}
