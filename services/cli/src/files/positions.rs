//! The lines of keys in YAML. The values come from another parser, which has no positions.

use std::collections::HashSet;

use saphyr_parser::{Event, Parser, Span, SpannedEventReceiver};

use super::form::Step;

/// The lines in an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Positions {
    node: Option<Node>,
}

/// A value, and those in it.
#[derive(Clone, Debug)]
struct Node {
    /// The line of its key in a map, else its own.
    line: usize,
    /// Its key in a map.
    key: String,
    content: Content,
    children: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Scalar(String),
    Map,
    List,
}

impl Positions {
    /// Returns the line of the key or element at the end of `path`, else of the nearest one around it.
    pub(super) fn line(&self, path: &[Step]) -> Option<usize> {
        let mut node = self.node.as_ref()?;
        for step in path {
            let next = match (step, &node.content) {
                (Step::Key(key), Content::Map) => node.children.iter().find(|it| it.key == *key),
                (Step::Index(index), Content::List) => node.children.get(*index),
                (Step::Key(_) | Step::Index(_), _) => None,
            };
            let Some(next) = next else { break };
            node = next;
        }
        Some(node.line)
    }

    /// Returns the line and the name of a key that a map has twice.
    pub(super) fn duplicate(&self) -> Option<(usize, &str)> {
        self.node.as_ref()?.duplicate()
    }

    /// Returns the first line of the object.
    pub(super) fn first_line(&self) -> Option<usize> {
        self.node.as_ref().map(|node| node.line)
    }
}

impl Node {
    fn duplicate(&self) -> Option<(usize, &str)> {
        let mut keys = HashSet::new();
        self.children.iter().find_map(|it| {
            let is_new = self.content != Content::Map || keys.insert(&it.key) || it.key == "<<";
            if is_new { it.duplicate() } else { Some((it.line, it.key.as_str())) }
        })
    }
}

/// Returns the positions of the objects in a document that begins at `first_line`; none if they cannot be determined.
pub(super) fn of(text: &str, first_line: usize) -> Vec<Positions> {
    let mut tree = Tree { first_line, open: Vec::new(), documents: Vec::new() };
    if Parser::new_from_str(text).load(&mut tree, true).is_err() {
        return Vec::new();
    }
    let objects = tree.documents.into_iter().flat_map(objects);
    objects.map(|node| Positions { node: Some(node) }).collect()
}

/// Returns the objects of a document, as `split::values` does.
fn objects(document: Node) -> Vec<Node> {
    let is_null = |text: &String| ["", "~", "null"].contains(&text.as_str());
    let is_list = |it: &Node| it.key == "kind" && it.content == Content::Scalar("List".to_owned());
    match &document.content {
        Content::List => document.children,
        Content::Scalar(text) if is_null(text) => Vec::new(),
        Content::Map if document.children.iter().any(is_list) => {
            let items = document.children.into_iter().find(|it| it.key == "items");
            items.filter(|it| it.content == Content::List).map_or_else(Vec::new, |it| it.children)
        }
        Content::Scalar(_) | Content::Map => vec![document],
    }
}

/// Builds nodes from events.
struct Tree {
    first_line: usize,
    /// Maps and lists that have begun, with the line and the name of the key whose value is read next.
    open: Vec<(Node, Option<(usize, String)>)>,
    documents: Vec<Node>,
}

impl Tree {
    fn add(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.documents.push(node),
            Some((parent, key)) => match (&parent.content, key.take(), node.content) {
                (Content::Map, None, Content::Scalar(name)) => *key = Some((node.line, name)),
                (Content::Map, None, Content::Map | Content::List) => {
                    *key = Some((node.line, String::new()))
                }
                (Content::Map, Some((line, key)), content) => {
                    parent.children.push(Node { line, key, content, children: node.children });
                }
                (_, _, content) => parent.children.push(Node { content, ..node }),
            },
        }
    }
}

impl<'text> SpannedEventReceiver<'text> for Tree {
    fn on_event(&mut self, event: Event<'text>, span: Span) {
        let line = self.first_line + span.start.line().saturating_sub(1);
        let node = |content| Node { line, key: String::new(), content, children: Vec::new() };
        match event {
            Event::MappingStart(..) => self.open.push((node(Content::Map), None)),
            Event::SequenceStart(..) => self.open.push((node(Content::List), None)),
            Event::MappingEnd | Event::SequenceEnd => {
                if let Some((node, _)) = self.open.pop() {
                    self.add(node);
                }
            }
            Event::Scalar(text, ..) => self.add(node(Content::Scalar(text.into_owned()))),
            Event::Alias(_) => self.add(node(Content::Scalar("*".into()))),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
        }
    }
}
