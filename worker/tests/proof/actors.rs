//! The processes that a proof starts at steps, and what they say.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyqueue::MessageId;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::actor::{ACTOR, Part};
use crate::grounds::Ground;
use crate::steps::Step;

/// Nothing that an actor is waited for takes as long, on a busy machine either.
const SOON: Duration = Duration::from_mins(1);

/// What a process said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Saying {
    /// It is about to push these.
    Pushes,
    /// These are acknowledged.
    Pushed,
    /// It begins to run this.
    Begins,
    /// It stands still, with these in its hands.
    Stands(Step),
    /// It has pushed after it stood still.
    GoesOn,
}

pub(crate) struct Line {
    pub(crate) process: usize,
    pub(crate) saying: Saying,
    pub(crate) ids: Vec<MessageId>,
    pub(crate) at: Instant,
}

impl Line {
    fn of(process: usize, text: &str) -> Self {
        let (what, rest) = ["pushes", "pushed", "begins", "stands", "goes on"]
            .into_iter()
            .find_map(|what| Some((what, text.strip_prefix(what)?)))
            .unwrap_or_else(|| panic!("a process said {text:?}"));
        let mut words = rest.split_whitespace();
        let saying = match what {
            "pushes" => Saying::Pushes,
            "pushed" => Saying::Pushed,
            "begins" => Saying::Begins,
            "stands" => Saying::Stands(words.next().unwrap().parse().unwrap()),
            _ => Saying::GoesOn,
        };
        Self { process, saying, ids: words.map(|id| id.parse().unwrap()).collect(), at: Instant::now() }
    }
}

/// What all of them said, in order.
#[derive(Default)]
pub(crate) struct Said {
    lines: Mutex<Vec<Line>>,
    more: Notify,
}

impl Said {
    pub(crate) fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap()
    }

    /// The tasks of all lines of this kind, each as often as it comes.
    pub(crate) fn ids(&self, saying: &Saying) -> Vec<MessageId> {
        let lines = self.lines();
        lines.iter().filter(|line| line.saying == *saying).flat_map(|line| line.ids.clone()).collect()
    }

    /// Waits until they have said enough, for a while.
    pub(crate) async fn until(&self, within: Duration, is_enough: impl Fn(&[Line]) -> bool) -> bool {
        let waiting = async {
            loop {
                // Registered before looking, so that no line falls in between.
                let mut more = pin!(self.more.notified());
                more.as_mut().enable();
                if is_enough(&self.lines()) {
                    return;
                }
                more.await;
            }
        };
        tokio::time::timeout(within, waiting).await.is_ok()
    }

    fn hear(&self, line: Line) {
        self.lines().push(line);
        self.more.notify_waiters();
    }
}

/// A process that stands still at a step.
pub(crate) struct Actor {
    pub(crate) number: usize,
    pub(crate) step: Step,
    child: Child,
    stdin: ChildStdin,
    reader: JoinHandle<()>,
}

impl Actor {
    fn start(ground: &Ground, number: usize, step: Step, said: &Arc<Said>) -> Self {
        let ledger = ground.ledger_url().map(str::to_owned);
        let part = Part { url: ground.url.clone(), ledger, step: step.to_string() };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ACTOR, serde_json::to_string(&part).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = Arc::clone(said);
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                said.hear(Line::of(number, &line));
            }
        });
        Self { number, step, child, stdin, reader }
    }

    /// Ends it without warning, and hears what it had said.
    async fn kill(mut self) {
        self.child.kill().await.unwrap();
        self.reader.await.unwrap();
    }

    async fn order(&mut self, order: &str) {
        self.stdin.write_all(order.as_bytes()).await.unwrap();
    }

    /// Ends it in order.
    async fn end(mut self) {
        self.order("end\n").await;
        let ended = tokio::time::timeout(SOON, self.child.wait()).await;
        let code = ended.unwrap_or_else(|_| panic!("an actor at {} does not end", self.step)).unwrap();
        assert!(code.success(), "an actor at {} ended as {code}", self.step);
        self.reader.await.unwrap();
    }
}

/// One process for each step.
pub(crate) struct Actors(Vec<Actor>);

impl Actors {
    /// Starts them, and waits until each stands still. The first one has this number.
    pub(crate) async fn start(ground: &Ground, first: usize, said: &Arc<Said>) -> Self {
        let numbered = Step::ALL.into_iter().zip(first..);
        let actors = numbered.map(|(step, number)| Actor::start(ground, number, step, said)).collect();
        let stands = |lines: &[Line], actor: &Actor| {
            lines.iter().any(|line| {
                line.process == actor.number && matches!(line.saying, Saying::Stands(at) if at == actor.step)
            })
        };
        let actors = Self(actors);
        let all = |lines: &[Line]| actors.0.iter().all(|actor| stands(lines, actor));
        if !said.until(SOON, all).await {
            let late = actors.0.iter().filter(|actor| !stands(&said.lines(), actor));
            panic!("no process stands at {:?}", late.map(|actor| actor.step).collect::<Vec<_>>());
        }
        actors
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|actor| actor.number)
    }

    pub(crate) async fn kill(self) {
        for actor in self.0 {
            actor.kill().await;
        }
    }

    pub(crate) async fn go_on(&mut self) {
        for actor in &mut self.0 {
            actor.order("go on\n").await;
        }
    }

    /// Those that have neither begun one of these tasks nor pushed.
    pub(crate) fn late(&self, lines: &[Line], tasks: &HashSet<MessageId>) -> Vec<Step> {
        let mut goes_on: HashMap<usize, bool> = HashMap::new();
        for line in lines {
            let begins = line.saying == Saying::Begins && line.ids.iter().any(|id| tasks.contains(id));
            *goes_on.entry(line.process).or_default() |= begins || line.saying == Saying::GoesOn;
        }
        let late = self.0.iter().filter(|actor| !goes_on.get(&actor.number).copied().unwrap_or_default());
        late.map(|actor| actor.step).collect()
    }

    pub(crate) async fn end(self) {
        for actor in self.0 {
            actor.end().await;
        }
    }
}
