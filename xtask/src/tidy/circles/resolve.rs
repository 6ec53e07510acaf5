//! Which file defines what a path stands for, and so which file takes something from which.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Kind, Mention, Name, Tree};

/// The names that are being looked up, each in its module. To know one, it is no use to ask for itself: two stars that both may lead
/// to it would double the work at each turn.
type Asked = BTreeSet<(usize, String)>;

/// What a path stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Something that this module's file defines.
    Item(usize),
    Module(usize),
}

/// For each file the files of which it uses something, each with the places of that: line, and path as written.
pub(super) type Edges = BTreeMap<(String, String), BTreeSet<(usize, String)>>;

/// The edges between the files of one crate.
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

/// The modules that define what is used there.
fn used(tree: &Tree, mention: &Mention) -> Vec<usize> {
    // One word is a name of the file's own, or an import that counts by itself; but what is only passed on does not.
    if let (Kind::Path, [name]) = (&mention.kind, mention.words.as_slice())
        && !tree.passed_on.contains(&(mention.module, name.clone()))
    {
        return Vec::new();
    }
    // A module's name alone takes nothing of it; a star takes all its names.
    let star = mention.kind == Kind::Glob;
    let found = resolve(tree, mention.module, &mention.words, &mut Asked::new()).into_iter();
    found
        .filter_map(|found| match found {
            Found::Item(module) => Some(module),
            Found::Module(module) => star.then_some(module),
        })
        .collect()
}

/// What the path stands for, seen from this module. Nothing where it leads out of the crate.
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
        // `super::super` goes on from there.
        return match rest.first().map(String::as_str) {
            None => vec![Found::Module(start)],
            Some("super") => resolve(tree, start, rest, asked),
            Some(_) => walk(tree, start, rest, asked),
        };
    }
    let found = find(tree, module, first, asked).unwrap_or_default();
    then(tree, &found, rest, asked)
}

/// What the rest of a path stands for, from a module that it has reached. A name that is not seen there (a macro makes it) is
/// taken for that module's own.
fn walk(tree: &Tree, module: usize, words: &[String], asked: &mut Asked) -> Vec<Found> {
    let Some((first, rest)) = words.split_first() else { return vec![Found::Module(module)] };
    match find(tree, module, first, asked) {
        None => vec![Found::Item(module)],
        Some(found) => then(tree, &found, rest, asked),
    }
}

/// What the rest stands for in what was found. What is in an item is that item's.
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

/// What the name stands for in the module; `None` if it does not have it, and while that is being asked already.
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
