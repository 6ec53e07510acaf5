//! The conformance suite over the SQLite backend.

mod harness;

anyqueue_conformance::suite!(harness::Sqlite::new());
