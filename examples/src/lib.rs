//! Small complete programs over anyqueue, each in `src/bin`. This library only holds the README, whose code is compiled as a
//! documentation test.

#![doc = include_str!("../../README.md")]
