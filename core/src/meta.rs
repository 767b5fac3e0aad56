//! The resources that task functions request.

use std::any::TypeId;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// The resources that a process requests. `#[fiber::meta(…)]` attaches them to a function; the
/// option `meta` of a builder requests them for its processes.
///
/// A process on this host gets the memory as its limit and its GPUs in `CUDA_VISIBLE_DEVICES`; the
/// number of cores is compared with those of the host. A container or pod gets all three as its
/// limits. A request that can't be granted fails the start.
///
/// # Examples
/// ```
/// # use fiber_core as fiber;
/// use fiber::Meta;
///
/// const RENDER: Meta = Meta::new().cpu(2.0).memory(512 << 20).gpu(1);
/// assert_eq!(RENDER.cpu, Some(2.0));
/// assert_eq!(RENDER.memory.unwrap().to_string(), "512.0 MiB");
/// assert_eq!(RENDER.gpu, Some(1));
/// ```
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
    /// Returns a request for nothing. [`Meta`] has an example with all requests.
    pub const fn new() -> Meta {
        Meta { cpu: None, memory: None, gpu: None }
    }

    /// Requests CPU cores. See the example of [`Meta`].
    #[must_use]
    pub const fn cpu(self, cores: f64) -> Meta {
        Meta { cpu: Some(cores), ..self }
    }

    /// Requests memory, in bytes. See the example of [`Meta`].
    #[must_use]
    pub const fn memory(self, bytes: u64) -> Meta {
        Meta { memory: Some(ByteSize(bytes)), ..self }
    }

    /// Requests GPUs. See the example of [`Meta`].
    #[must_use]
    pub const fn gpu(self, count: u32) -> Meta {
        Meta { gpu: Some(count), ..self }
    }

    /// Returns the requests that `#[fiber::meta]` has attached to the function type `F`.
    ///
    /// # Examples
    /// ```
    /// # use fiber_core as fiber;
    /// use fiber::Meta;
    ///
    /// fn meta_of<F: 'static>(_: F) -> Meta {
    ///     Meta::of::<F>()
    /// }
    ///
    /// fn plain() {}
    ///
    /// assert_eq!(meta_of(plain), Meta::new());
    /// ```
    pub fn of<F: 'static>() -> Meta {
        let wanted = TypeId::of::<F>();
        let attached =
            inventory::iter::<MetaOf>.into_iter().find(|attached| (attached.function)() == wanted);
        attached.map(|attached| attached.meta).unwrap_or_default()
    }

    /// Returns these requests, and those of `other` where this has none.
    ///
    /// # Examples
    /// ```
    /// # use fiber_core as fiber;
    /// use fiber::Meta;
    ///
    /// let meta = Meta::new().cpu(2.0).or(Meta::new().cpu(1.0).gpu(1));
    /// assert_eq!(meta, Meta::new().cpu(2.0).gpu(1));
    /// ```
    #[must_use]
    pub fn or(self, other: Meta) -> Meta {
        Meta {
            cpu: self.cpu.or(other.cpu),
            memory: self.memory.or(other.memory),
            gpu: self.gpu.or(other.gpu),
        }
    }
}

impl Meta {
    /// Returns why no backend can grant this request, if none can.
    #[doc(hidden)]
    pub fn problem(&self) -> Option<String> {
        if let Some(cores) = self.cpu.filter(|cores| !cores.is_finite() || *cores <= 0.0) {
            let problem = "ask for a number above 0, such as 0.5, or for none";
            return Some(format!("it asks for {cores} CPU cores: {problem}"));
        }
        let problem = "it asks for 0 B of memory: ask for some, or leave it out";
        (self.memory == Some(ByteSize(0))).then(|| problem.into())
    }
}

/// Returns a number of graphics processors as words: `1 GPU`, `2 GPUs`.
pub fn gpus_in_words(count: u32) -> String {
    if count == 1 { "1 GPU".into() } else { format!("{count} GPUs") }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_nothing_grants_are_named() {
        for cores in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let problem = Meta::new().cpu(cores).problem().unwrap();
            assert!(problem.contains(&format!("it asks for {cores} CPU cores")), "{problem}");
        }
        assert!(Meta::new().memory(0).problem().unwrap().contains("0 B of memory"));
        for meta in [Meta::new(), Meta::new().cpu(f64::MIN_POSITIVE).memory(1).gpu(0)] {
            assert_eq!(meta.problem(), None);
        }
    }
}
