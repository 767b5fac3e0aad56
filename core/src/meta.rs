//! What a task function asks of the machine that runs it.

use std::any::TypeId;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// Resources that a process is to have. `#[fiber::meta(…)]` attaches them to a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Meta {
    /// Processor cores.
    pub cpu: Option<f64>,
    /// Memory.
    pub memory: Option<ByteSize>,
    /// Graphics processors.
    pub gpu: Option<u32>,
}

impl Meta {
    /// Nothing in particular.
    pub const fn new() -> Meta {
        Meta { cpu: None, memory: None, gpu: None }
    }

    /// Asks for processor cores.
    #[must_use]
    pub const fn cpu(self, cores: f64) -> Meta {
        Meta { cpu: Some(cores), ..self }
    }

    /// Asks for bytes of memory.
    #[must_use]
    pub const fn memory(self, bytes: u64) -> Meta {
        Meta { memory: Some(ByteSize(bytes)), ..self }
    }

    /// Asks for graphics processors.
    #[must_use]
    pub const fn gpu(self, count: u32) -> Meta {
        Meta { gpu: Some(count), ..self }
    }

    /// What `#[fiber::meta]` attached to the function type `F`.
    pub fn of<F: 'static>() -> Meta {
        let wanted = TypeId::of::<F>();
        let attached =
            inventory::iter::<MetaOf>.into_iter().find(|attached| (attached.function)() == wanted);
        attached.map(|attached| attached.meta).unwrap_or_default()
    }

    /// These requests, and `other`'s where this has none.
    #[must_use]
    pub fn or(self, other: Meta) -> Meta {
        Meta {
            cpu: self.cpu.or(other.cpu),
            memory: self.memory.or(other.memory),
            gpu: self.gpu.or(other.gpu),
        }
    }
}

/// A function with its [`Meta`]; `#[fiber::meta]` makes these.
#[derive(Debug)]
pub struct MetaOf {
    function: fn() -> TypeId,
    meta: Meta,
}

impl MetaOf {
    /// Attaches `meta` to the function whose type `function` names.
    pub const fn new(function: fn() -> TypeId, meta: Meta) -> MetaOf {
        MetaOf { function, meta }
    }

    /// The type of a function, from the function.
    pub fn type_of<F: 'static>(_: F) -> TypeId {
        TypeId::of::<F>()
    }
}

inventory::collect!(MetaOf);
