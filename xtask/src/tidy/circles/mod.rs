//! Circles of imports between the files of a crate: none of their files can be read, tested or changed without the others.
//!
//! A file imports another if a `use` or a path in its code stands for something that the other defines. `mod` lines do not
//! count, nor does code for tests alone: a test may use what stands above that which it tests. A name that a file only passes on
//! (`pub use`) is of the file that defines it: so whoever imports it from there imports that file, and the one that passes it
//! on imports nothing, unless its own code uses the name as well.

mod resolve;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use self::resolve::Edges;
use self::tree::Tree;
use super::file::{File, Finding, is_root};

/// Imports shown of one file from one other.
const SHOWN: usize = 2;

/// The files of a circle, in order.
type Circle = Vec<String>;

/// Every circle, with the imports that close it.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let texts: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let read = |path: &str| texts.get(path).map(|text| (*text).to_owned());
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for root in files.iter().filter(|file| file.is_rust() && is_root(&file.path)) {
        let tree = match Tree::of(&root.path, &read) {
            Ok(tree) => tree,
            Err(why) => {
                findings.push(Finding::new(root, 1, "circle", why));
                continue;
            }
        };
        let edges = resolve::edges(&tree);
        // Files that several roots share are seen as often.
        let new = circles(&edges).into_iter().filter(|circle| seen.insert(circle.clone()));
        findings.extend(new.filter_map(|circle| finding(files, &circle, &edges)));
    }
    findings
}

/// One finding with all files and the imports that close the circle.
fn finding(files: &[File], circle: &Circle, edges: &Edges) -> Option<Finding> {
    let first = files.iter().find(|file| circle.first() == Some(&file.path))?;
    let mut lines =
        vec![format!("{} files import each other: move what they share to a file below them", circle.len())];
    for file in circle {
        lines.push(format!("    {file}"));
        for ((from, to), places) in edges {
            if from == file && circle.contains(to) {
                for (line, path) in places.iter().take(SHOWN) {
                    lines.push(format!("        {line}: {path} of {to}"));
                }
            }
        }
    }
    Some(Finding::new(first, 1, "circle", lines.join("\n")))
}

/// The largest sets of files of which each leads to each other.
fn circles(edges: &Edges) -> BTreeSet<Circle> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in edges.keys() {
        next.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|from| (*from, reach(&next, from))).collect();
    let leads = |from: &str, to: &str| reached.get(from).is_some_and(|reached| reached.contains(to));
    let circle = |file: &str| {
        let others = next.keys().filter(|other| leads(file, other) && leads(other, file));
        others.map(|other| (*other).to_owned()).collect::<Circle>()
    };
    next.keys().map(|file| circle(file)).filter(|circle| circle.len() > 1).collect()
}

fn reach<'e>(next: &BTreeMap<&'e str, BTreeSet<&'e str>>, from: &str) -> BTreeSet<&'e str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = next.get(from).into_iter().flatten().copied().collect();
    while let Some(file) = open.pop() {
        if reached.insert(file) {
            open.extend(next.get(file).into_iter().flatten().copied());
        }
    }
    reached
}

#[cfg(test)]
mod tests;
