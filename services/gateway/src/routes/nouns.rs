//! The nouns of the contract: what its lists list.

use prost_reflect::{FieldDescriptor, MessageDescriptor, MethodDescriptor, ServiceDescriptor};

use super::names::{kebab, snake, without, words};

/// A kind of object.
#[derive(Clone, Debug)]
pub(super) struct Noun {
    /// The service that lists it.
    service: String,
    /// The type of its objects.
    pub(super) message: MessageDescriptor,
    /// The words of its name.
    pub(super) singular: Vec<String>,
    /// The words of the plural, as its list spells it.
    plural_words: Vec<String>,
    /// The plural in paths.
    pub(super) plural: String,
    /// The field that a path has: `id`, or what stands for it.
    pub(super) key: String,
}

impl Noun {
    /// Returns what `call` lists, if it is a list of messages. Its key is taken from the get among `calls`, else from its own message.
    fn new(call: &MethodDescriptor, calls: &[MethodDescriptor]) -> Option<Self> {
        let plural = words(call.name().strip_prefix("List")?);
        let message = call
            .output()
            .fields()
            .find_map(|field| field.kind().as_message().filter(|_| field.is_list()).cloned())?;
        let get = format!("Get{}", message.name());
        let get = calls.iter().find(|it| it.name() == get).map(MethodDescriptor::input);
        Some(Self {
            service: call.parent_service().full_name().to_owned(),
            singular: words(message.name()),
            plural: kebab(&plural),
            plural_words: plural,
            key: key(&get.unwrap_or_else(|| message.clone()))?,
            message,
        })
    }

    /// True if `field` holds one object of this kind.
    pub(super) fn is_type_of(&self, field: &FieldDescriptor) -> bool {
        !field.is_list() && field.kind().as_message() == Some(&self.message)
    }
}

/// Returns the name of the field `id` of `message`, else of its first field.
fn key(message: &MessageDescriptor) -> Option<String> {
    let id = message.get_field_by_name("id");
    let field = id.or_else(|| message.fields().min_by_key(FieldDescriptor::number))?;
    Some(field.name().to_owned())
}

/// All nouns.
#[derive(Clone, Debug)]
pub(super) struct Nouns(Vec<Noun>);

impl Nouns {
    /// Collects the nouns that `calls` list.
    pub(super) fn new(calls: &[MethodDescriptor]) -> Self {
        Self(calls.iter().filter_map(|call| Noun::new(call, calls)).collect())
    }

    /// Returns the noun with this name.
    pub(super) fn by_singular(&self, words: &[String]) -> Option<&Noun> {
        self.0.iter().find(|noun| noun.singular == words)
    }

    /// Returns the noun with this plural.
    pub(super) fn by_plural(&self, words: &[String]) -> Option<&Noun> {
        self.0.iter().find(|noun| noun.plural_words == words)
    }

    /// Returns the longest noun of `service` in the name of a call, and the rest of the name.
    pub(super) fn in_name(
        &self,
        service: &ServiceDescriptor,
        name: &[String],
    ) -> Option<(&Noun, Vec<String>)> {
        let own = self.0.iter().filter(|noun| noun.service == service.full_name());
        let found = own.filter_map(|noun| {
            let rest = without(name, &noun.singular).or_else(|| without(name, &noun.plural_words));
            Some((noun, rest?))
        });
        found.min_by_key(|(_, rest)| rest.len())
    }

    /// Returns the noun whose id is a field of the call's request, such as `workflow_id`: one of its own service, else the first field's.
    pub(super) fn by_field(&self, call: &MethodDescriptor) -> Option<(&Noun, FieldDescriptor)> {
        let service = call.parent_service().full_name().to_owned();
        let mut found: Vec<_> = call
            .input()
            .fields()
            .filter(|field| field.containing_oneof().is_none() && !field.is_list())
            .filter_map(|field| {
                let named = |noun: &&Noun| format!("{}_id", snake(&noun.singular)) == field.name();
                Some((self.0.iter().find(named)?, field))
            })
            .collect();
        found.sort_by_key(|(noun, field)| (noun.service != service, field.number()));
        found.into_iter().next()
    }
}
