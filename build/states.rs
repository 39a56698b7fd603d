//! States of lifecycles, from the option `state`.

use protox::prost_reflect::{
    DescriptorPool, EnumDescriptor, EnumValueDescriptor, MessageDescriptor,
};

use crate::names::{enum_path, snake, type_path, variant};
use crate::options::Options;

/// Returns the rows of the macro in `src/states.rs`: the enums of states.
pub(crate) fn rows(pool: &DescriptorPool) -> Result<String, String> {
    let mut rows = String::new();
    for states in pool.all_enums() {
        let users: Vec<_> = pool.all_messages().filter(|it| has_state(it, &states)).collect();
        let mut values = states.values().filter(|state| state.number() != 0);
        if users.iter().any(is_noun) || values.any(|state| option(&states, &state).is_ok()) {
            rows += &row(&states, &users)?;
        }
    }
    Ok(rows)
}

/// Returns the row of `states`, which is the type of the field `state` of `users`.
fn row(states: &EnumDescriptor, users: &[MessageDescriptor]) -> Result<String, String> {
    let mut values = String::new();
    let mut can_end = false;
    for state in states.values().filter(|state| state.number() != 0) {
        let (is_final, minutes) = stay(states, &state)?;
        can_end |= is_final;
        values += &format!("{} {is_final} {minutes}, ", variant(states, &state));
    }
    let is_object = |user: &&MessageDescriptor| user.get_field_by_name("id").is_some();
    let users = users.iter().filter(is_object).filter(|_| can_end);
    let users = users.map(|user| type_path(user) + ", ");
    let path = enum_path(states);
    let prefix = prefix(states);
    Ok(format!("{path}, {prefix:?}, [{values}], [{}];\n", users.collect::<String>()))
}

/// Returns the states of `message` by their names in documents; none if it has no lifecycle.
pub(crate) fn words(message: &MessageDescriptor) -> Result<String, String> {
    let field = message.get_field_by_name("state").filter(|field| !field.is_list());
    let Some(kind) = field.map(|field| field.kind()) else { return Ok(String::new()) };
    let Some(states) = kind.as_enum() else { return Ok(String::new()) };
    let word = |state: EnumValueDescriptor| {
        let (is_final, minutes) = stay(states, &state)?;
        let word = state.name().trim_start_matches(&prefix(states)).to_lowercase();
        Ok(format!("{word:?} {is_final} {minutes}, "))
    };
    states.values().filter(|state| state.number() != 0).map(word).collect()
}

/// Returns true if `state` is final, and the maximum of a normal stay in minutes or 0.
fn stay(states: &EnumDescriptor, state: &EnumValueDescriptor) -> Result<(bool, u64), String> {
    let option = option(states, state)?;
    let is_final = option.flag("final");
    let minutes = option.number("max_minutes");
    if !is_final && !option.flag("unlimited") && minutes == 0 {
        return Err(option.error("neither final, nor unlimited, nor with a maximum"));
    }
    Ok((is_final, minutes))
}

/// Returns the beginning of the names of `states`.
fn prefix(states: &EnumDescriptor) -> String {
    snake(states.name()).to_uppercase() + "_"
}

fn option(states: &EnumDescriptor, state: &EnumValueDescriptor) -> Result<Options, String> {
    Options::require(&states.parent_file(), state.full_name(), &state.options(), "state")
}

/// True if `message` has one of `states` in its field `state`.
fn has_state(message: &MessageDescriptor, states: &EnumDescriptor) -> bool {
    let field = message.get_field_by_name("state").filter(|field| !field.is_list());
    field.is_some_and(|field| field.kind().as_enum() == Some(states))
}

fn is_noun(message: &MessageDescriptor) -> bool {
    Options::find(&message.parent_file(), message.full_name(), &message.options(), "noun").is_some()
}
