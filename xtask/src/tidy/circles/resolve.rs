//! Which file defines what a path refers to, and so which file imports from which.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Kind, Mention, Name, Tree};

/// The names that are being looked up, each in its module. A name is not looked up again as part of its own
/// look-up: two glob imports that may both lead to it would double the work at each step.
type Asked = BTreeSet<(usize, String)>;

/// What a path refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Something that this module's file defines.
    Item(usize),
    Module(usize),
}

/// For each pair of files of which the first uses something of the second, the places: line, and path as
/// written.
pub(super) type Edges = BTreeMap<(String, String), BTreeSet<(usize, String)>>;

/// Returns the edges between the files of one crate.
pub(super) fn edges(tree: &Tree) -> Edges {
    let mut edges = Edges::new();
    for mention in &tree.mentions {
        let Some(from) = tree.modules.get(mention.module) else { continue };
        for to in used(tree, mention) {
            let Some(to) = tree.modules.get(to).filter(|to| to.file != from.file) else { continue };
            let key = (from.file.clone(), to.file.clone());
            edges.entry(key).or_default().insert((mention.line, mention.words.join("::")));
        }
    }
    edges
}

/// Returns the modules that define what is used at this place.
fn used(tree: &Tree, mention: &Mention) -> Vec<usize> {
    // A single word is a name of the file itself, or an import that counts by itself, unless it is only
    // re-exported.
    if let (Kind::Path, [name]) = (&mention.kind, mention.words.as_slice())
        && !tree.passed_on.contains(&(mention.module, name.clone()))
    {
        return Vec::new();
    }
    // The name of a module alone uses nothing of it; a glob uses all its names.
    let star = mention.kind == Kind::Glob;
    let found = resolve(tree, mention.module, &mention.words, &mut Asked::new()).into_iter();
    found
        .filter_map(|found| match found {
            Found::Item(module) => Some(module),
            Found::Module(module) => star.then_some(module),
        })
        .collect()
}

/// Returns what the path refers to, seen from this module; nothing if it leads out of the crate.
fn resolve(tree: &Tree, module: usize, words: &[String], asked: &mut Asked) -> Vec<Found> {
    let Some((first, rest)) = words.split_first() else { return Vec::new() };
    let parent = || tree.modules.get(module).and_then(|module| module.parent);
    let start = match first.as_str() {
        "crate" => Some(0),
        "self" => Some(module),
        "super" => parent(),
        _ => None,
    };
    if let Some(start) = start {
        // `super::super` continues from there.
        return match rest.first().map(String::as_str) {
            None => vec![Found::Module(start)],
            Some("super") => resolve(tree, start, rest, asked),
            Some(_) => walk(tree, start, rest, asked),
        };
    }
    let found = find(tree, module, first, asked).unwrap_or_default();
    then(tree, &found, rest, asked)
}

/// Returns what the rest of a path refers to, from a module that it has reached. A name that is not found
/// there (a macro makes it) is taken to be that module's own.
fn walk(tree: &Tree, module: usize, words: &[String], asked: &mut Asked) -> Vec<Found> {
    let Some((first, rest)) = words.split_first() else { return vec![Found::Module(module)] };
    match find(tree, module, first, asked) {
        None => vec![Found::Item(module)],
        Some(found) => then(tree, &found, rest, asked),
    }
}

/// Returns what the rest refers to within what was found. What is inside an item belongs to that item.
fn then(tree: &Tree, found: &[Found], rest: &[String], asked: &mut Asked) -> Vec<Found> {
    if rest.is_empty() {
        return found.to_vec();
    }
    let modules: Vec<usize> = found
        .iter()
        .filter_map(|found| match found {
            Found::Module(module) => Some(*module),
            Found::Item(_) => None,
        })
        .collect();
    if modules.is_empty() {
        return found.to_vec();
    }
    modules.into_iter().flat_map(|module| walk(tree, module, rest, asked)).collect()
}

/// Returns what the name refers to in the module; `None` if the module does not have it, or while it is
/// already being looked up.
fn find(tree: &Tree, module: usize, name: &str, asked: &mut Asked) -> Option<Vec<Found>> {
    if !asked.insert((module, name.to_owned())) {
        return None;
    }
    let found = look(tree, module, name, asked);
    asked.remove(&(module, name.to_owned()));
    found
}

fn look(tree: &Tree, module: usize, name: &str, asked: &mut Asked) -> Option<Vec<Found>> {
    let scope = tree.modules.get(module)?;
    let Some(names) = scope.names.get(name) else {
        return scope.globs.iter().find_map(|words| {
            resolve(tree, module, words, asked).into_iter().find_map(|found| match found {
                Found::Module(other) => find(tree, other, name, asked),
                Found::Item(_) => None,
            })
        });
    };
    let mut all = Vec::new();
    for name in names {
        match name {
            Name::Item => all.push(Found::Item(module)),
            Name::Module(below) => all.push(Found::Module(*below)),
            Name::Import(words) => all.extend(resolve(tree, module, words, asked)),
        }
    }
    Some(all)
}
