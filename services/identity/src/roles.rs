//! The roles that identities may have.

use runtime::Role;
use tinwright::identity::v1 as pb;
use tinwright::status::Violations;

/// Returns the role that `number` names in the contract.
pub fn parse(field: &str, number: i32) -> Result<Role, Violations> {
    Ok(match pb::Role::try_from(number) {
        Ok(pb::Role::Viewer) => Role::Viewer,
        Ok(pb::Role::Operator) => Role::Operator,
        Ok(pb::Role::Admin) => Role::Admin,
        Ok(pb::Role::Edge) => Role::Edge,
        Ok(pb::Role::Door) => Role::Door,
        Ok(pb::Role::Builder) => Role::Builder,
        Ok(pb::Role::Unspecified) => return Err(Violations::single(field, "is missing")),
        Err(_) => return Err(Violations::single(field, format!("{number} is not a role"))),
    })
}

/// Returns the role that `number` names, if it is one of people: viewer, operator or admin.
pub fn parse_personal(field: &str, number: i32) -> Result<Role, Violations> {
    match parse(field, number)? {
        role @ (Role::Viewer | Role::Operator | Role::Admin) => Ok(role),
        Role::Service | Role::Edge | Role::Door | Role::Builder | Role::Machine(..) => {
            Err(Violations::single(field, "is none of viewer, operator and admin"))
        }
    }
}
