//! Circular imports between the files of a crate: none of these files can be read, tested or changed without
//! the others.
//!
//! A file imports another if a `use` or a path in its code refers to something that the other defines. `mod`
//! lines do not count, nor does code that is only for tests: a test may use what is built on the code that it
//! tests. A name that a file only re-exports (`pub use`) belongs to the file that defines it: whoever imports
//! it from there imports that defining file, and the file that re-exports it imports nothing, unless its own
//! code uses the name as well.

mod resolve;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use self::resolve::Edges;
use self::tree::Tree;
use super::file::{File, Finding, is_root};

/// How many imports of one file from another are shown.
const SHOWN: usize = 2;

/// The files of a circle, in order.
type Circle = Vec<String>;

/// Finds every circle, with the imports that close it.
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
        // Files that several roots share are found once for each root.
        let new = circles(&edges).into_iter().filter(|circle| seen.insert(circle.clone()));
        findings.extend(new.filter_map(|circle| finding(files, &circle, &edges)));
    }
    findings
}

/// Makes one finding with all files of the circle and the imports that close it.
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

/// Returns the largest sets of files in which each file leads to every other.
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
