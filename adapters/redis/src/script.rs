//! The scripts, assembled from the files in `scripts/`.

use std::sync::LazyLock;

use redis::Cmd;

/// A script, and its hash, by which the server knows it.
pub(crate) struct Script {
    text: String,
    hash: String,
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let text = parts.concat();
        Self { hash: redis::Script::new(&text).get_hash().to_owned(), text }
    }

    /// Its hash on the server.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// Its text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The command that loads it into the server.
    pub(crate) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }
}

const COMMON: &str = include_str!("../scripts/common.lua");
const LINING_UP: &str = include_str!("../scripts/lining_up.lua");
const STORING: &str = include_str!("../scripts/storing.lua");
const COMPACTION: &str = include_str!("../scripts/compaction.lua");
const STORING_MANY: &str = include_str!("../scripts/storing_many.lua");
const READING: &str = include_str!("../scripts/reading.lua");
const LEAVING: &str = include_str!("../scripts/leaving.lua");
const TOMBS: &str = include_str!("../scripts/tombs.lua");
const LEASES: &str = include_str!("../scripts/leases.lua");
const MARKING: &str = include_str!("../scripts/marking.lua");
const COMING_BACK: &str = include_str!("../scripts/coming_back.lua");
const STANDING: &str = include_str!("../scripts/standing.lua");
const REAPING: &str = include_str!("../scripts/reaping.lua");
const CLAIM: &str = include_str!("../scripts/claim.lua");
const ARRIVE: &str = include_str!("../scripts/arrive.lua");
const FINISH: &str = include_str!("../scripts/finish.lua");
const FOLLOW: &str = include_str!("../scripts/follow.lua");
const LEDGER: &str = include_str!("../scripts/ledger.lua");
const CONTROL: &str = include_str!("../scripts/control.lua");
const WITHDRAWING: &str = include_str!("../scripts/withdrawing.lua");

macro_rules! scripts {
    ($($name:ident = [$($part:expr),*], $file:literal;)*) => {
        $(pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(&[$($part,)* include_str!(concat!("../scripts/", $file))])
        });)*

        /// All scripts, to be loaded when a connection is opened.
        pub(crate) fn all() -> Vec<&'static Script> {
            vec![$(&*$name),*]
        }
    };
}

scripts! {
    PUSH = [COMMON, LINING_UP, STORING, MARKING, STORING_MANY], "push.lua";
    PUSH_OVER = [COMMON, LINING_UP, STORING, COMPACTION, MARKING, STORING_MANY], "push_over.lua";
    PULL = [COMMON, LINING_UP, READING, LEASES, COMING_BACK, REAPING, TOMBS, STANDING, CLAIM], "pull.lua";
    SETTLE = [COMMON, LINING_UP, STORING, LEAVING, LEASES, COMING_BACK, ARRIVE, LEDGER, FINISH], "settle.lua";
    SETTLE_THEN = [COMMON, LINING_UP, STORING, COMPACTION, MARKING, STORING_MANY, LEAVING, LEASES, COMING_BACK, ARRIVE, LEDGER, FINISH, FOLLOW],
        "settle_then.lua";
    EXCHANGE = [COMMON, LINING_UP, STORING, READING, LEAVING, LEASES, COMING_BACK, REAPING, TOMBS, STANDING, CLAIM, ARRIVE, LEDGER, FINISH],
        "exchange.lua";
    EXCHANGE_THEN = [COMMON, LINING_UP, STORING, COMPACTION, MARKING, STORING_MANY, READING, LEAVING, LEASES, COMING_BACK, REAPING, TOMBS, STANDING, CLAIM,
            ARRIVE, LEDGER, FINISH, FOLLOW],
        "exchange_then.lua";
    HELD = [COMMON, LEASES], "held.lua";
    COPY = [COMMON, LEAVING, LEASES], "copy.lua";
    STORE_COPY = [COMMON, LINING_UP, STORING, ARRIVE], "store_copy.lua";
    EXTEND = [COMMON, LEASES], "extend.lua";
    TAKE_OUT = [COMMON, LINING_UP, READING, LEAVING, LEASES, TOMBS, STANDING, WITHDRAWING], "take_out.lua";
    CANCEL = [COMMON, LINING_UP, READING, LEAVING, LEASES, TOMBS, STANDING, WITHDRAWING, LEDGER], "cancel.lua";
    RECORD_ENDED = [COMMON, LEDGER], "record_ended.lua";
    LIST_ENDED = [COMMON, LEDGER], "list_ended.lua";
    COUNT_ENDED = [COMMON, LEDGER], "count_ended.lua";
    FIND_ENDED = [COMMON, LEDGER], "find_ended.lua";
    DELETE_ENDED = [COMMON, LEDGER], "delete_ended.lua";
    PURGE_ENDED = [COMMON, LEDGER], "purge_ended.lua";
    SERIES = [COMMON], "series.lua";
    LAPSED_PARTITIONS = [], "lapsed_partitions.lua";
    ENLIST = [], "enlist.lua";
    DELIST = [], "delist.lua";
    PURGE = [COMMON, LINING_UP, READING, LEAVING, LEASES, COMING_BACK, REAPING, TOMBS, STANDING, CLAIM], "purge.lua";
    COUNTS = [COMMON, LINING_UP, LEASES, COMING_BACK, REAPING], "counts.lua";
    AMEND = [COMMON, LINING_UP, STORING, MARKING, COMPACTION, READING, LEAVING, LEASES, COMING_BACK, TOMBS, STANDING], "amend.lua";
    LIST = [COMMON], "list.lua";
    LIST_PARTITIONS = [], "list_partitions.lua";
    SCAN = [COMMON], "scan.lua";
    SHOW = [COMMON, LEAVING, LEASES], "show.lua";
    PAUSE = [COMMON], "pause.lua";
    CONTROL_GET = [CONTROL], "control_get.lua";
    CONTROL_LIST = [CONTROL], "control_list.lua";
    CONTROL_APPLY = [CONTROL], "control_apply.lua";
    RIGHTS = [], "rights.lua";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of commands in a script, each of which follows `begin`.
    fn named<'s>(text: &'s str, begin: &'s str) -> impl Iterator<Item = &'s str> {
        text.split(begin).skip(1).filter_map(|rest| rest.split('\'').next())
    }

    #[test]
    fn whoever_opens_a_queue_is_asked_for_the_right_to_every_command_of_scripts() {
        let rights = RIGHTS.text();
        let tried: Vec<_> = named(rights, "{ '").chain(named(rights, "try('")).collect();
        let mut used = 0;
        for script in all().into_iter().filter(|script| script.text() != rights) {
            for command in named(script.text(), "call('").chain(named(script.text(), "write('")) {
                assert!(tried.contains(&command), "{command} is not tried");
                used += 1;
            }
        }
        assert!(used > 100, "{used} uses of commands");
    }
}
