//! The scripts: what is in `scripts/`, put together.

use std::sync::LazyLock;

use redis::Cmd;

/// A script, and the name that the server has for it.
pub(crate) struct Script {
    text: String,
    hash: String,
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let text = parts.concat();
        Self { hash: redis::Script::new(&text).get_hash().to_owned(), text }
    }

    /// Its name on the server.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// All of it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The command that makes the server know it.
    pub(crate) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }
}

const COMMON: &str = include_str!("../scripts/common.lua");
const LEASES: &str = include_str!("../scripts/leases.lua");
const CLAIM: &str = include_str!("../scripts/claim.lua");
const ARRIVE: &str = include_str!("../scripts/arrive.lua");
const FINISH: &str = include_str!("../scripts/finish.lua");

macro_rules! scripts {
    ($($name:ident = [$($part:expr),*], $file:literal;)*) => {
        $(pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(&[$($part,)* include_str!(concat!("../scripts/", $file))])
        });)*

        /// All of them, to be loaded when a connection is made.
        pub(crate) fn all() -> Vec<&'static Script> {
            vec![$(&*$name),*]
        }
    };
}

scripts! {
    PUSH = [COMMON], "push.lua";
    PULL = [COMMON, LEASES, CLAIM], "pull.lua";
    SETTLE = [COMMON, LEASES, ARRIVE, FINISH], "settle.lua";
    EXCHANGE = [COMMON, LEASES, CLAIM, ARRIVE, FINISH], "exchange.lua";
    COPY = [COMMON, LEASES], "copy.lua";
    LAND = [COMMON, ARRIVE], "land.lua";
    EXTEND = [COMMON, LEASES], "extend.lua";
    TAKE_OUT = [COMMON, LEASES], "take_out.lua";
    PURGE = [COMMON, LEASES, CLAIM], "purge.lua";
    COUNTS = [COMMON, LEASES], "counts.lua";
    LIST = [COMMON], "list.lua";
    SCAN = [COMMON], "scan.lua";
    SHOW = [COMMON, LEASES], "show.lua";
    PAUSE = [COMMON], "pause.lua";
    RIGHTS = [], "rights.lua";
}
