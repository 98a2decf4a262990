//! Types of plain data as trees.

use wasmtime::component::Val;
use wasmtime::component::types::Type;

/// Maximum number of nodes of all types of a component's functions together. A type counts at each use, because a few
/// short definitions can expand to any number of nodes.
const MAX_NODES: usize = 20_000;

/// Bytes that a flag of a value takes in addition to its name: a string, and an allocation for the name.
const FLAG: usize = size_of::<String>() + 32;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Bool,
    Integer(Integer),
    Float32,
    Float64,
    Char,
    String,
    /// `list<u8>`.
    Bytes,
    List(Box<Shape>),
    Record(Vec<Field>),
    Tuple(Vec<Shape>),
    Variant(Vec<Case>),
    Enum(Vec<String>),
    Option(Box<Shape>),
    Result {
        ok: Option<Box<Shape>>,
        error: Option<Box<Shape>>,
    },
    Flags(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Integer {
    S8,
    U8,
    S16,
    U16,
    S32,
    U32,
    S64,
    U64,
}

/// A field of a record, or a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) shape: Shape,
}

/// A case of a variant.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) payload: Option<Shape>,
}

/// Number of nodes that are left.
pub(super) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(MAX_NODES)
    }
}

impl Budget {
    fn spend(&mut self, parts: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(parts).ok_or("has types that are too large")?;
        Ok(())
    }

    /// Counts a name by its length, since every use of its type copies it.
    fn name(&mut self, name: &str) -> Result<String, String> {
        self.spend(1 + name.len() / 32)?;
        Ok(name.into())
    }
}

impl Shape {
    /// Converts a type.
    ///
    /// # Errors
    /// If it is not plain data; the message continues a sentence that begins with the name of the function.
    pub(super) fn from_type(ty: &Type, budget: &mut Budget) -> Result<Self, String> {
        budget.spend(1)?;
        let mut shape = |ty: Type| Self::from_type(&ty, budget);
        Ok(match ty {
            Type::Bool => Self::Bool,
            Type::S8 => Self::Integer(Integer::S8),
            Type::U8 => Self::Integer(Integer::U8),
            Type::S16 => Self::Integer(Integer::S16),
            Type::U16 => Self::Integer(Integer::U16),
            Type::S32 => Self::Integer(Integer::S32),
            Type::U32 => Self::Integer(Integer::U32),
            Type::S64 => Self::Integer(Integer::S64),
            Type::U64 => Self::Integer(Integer::U64),
            Type::Float32 => Self::Float32,
            Type::Float64 => Self::Float64,
            Type::Char => Self::Char,
            Type::String => Self::String,
            Type::List(list) => match list.ty() {
                Type::U8 => Self::Bytes,
                item => Self::List(Box::new(shape(item)?)),
            },
            Type::Record(record) => {
                let fields = record
                    .fields()
                    .map(|it| Ok(Field { name: budget.name(it.name)?, shape: Self::from_type(&it.ty, budget)? }));
                Self::Record(fields.collect::<Result<_, String>>()?)
            }
            Type::Tuple(tuple) => Self::Tuple(tuple.types().map(shape).collect::<Result<_, _>>()?),
            Type::Variant(variant) => {
                let cases = variant.cases().map(|case| {
                    let payload = case.ty.map(|ty| Self::from_type(&ty, budget)).transpose()?;
                    Ok(Case { name: budget.name(case.name)?, payload })
                });
                Self::Variant(cases.collect::<Result<_, String>>()?)
            }
            Type::Enum(cases) => Self::Enum(cases.names().map(|name| budget.name(name)).collect::<Result<_, _>>()?),
            Type::Option(option) => Self::Option(Box::new(shape(option.ty())?)),
            Type::Result(result) => Self::Result {
                ok: result.ok().map(&mut shape).transpose()?.map(Box::new),
                error: result.err().map(shape).transpose()?.map(Box::new),
            },
            Type::Flags(flags) => Self::Flags(flags.names().map(|name| budget.name(name)).collect::<Result<_, _>>()?),
            Type::Own(_) | Type::Borrow(_) => return Err("uses a resource".into()),
            Type::Future(_) => return Err("uses a future".into()),
            Type::Stream(_) => return Err("uses a stream".into()),
            Type::ErrorContext => return Err("uses an error context".into()),
            // Components with these two types are invalid without WebAssembly features that are not enabled.
            Type::Map(_) => return Err("uses a map".into()),
            Type::FixedLengthList(_) => return Err("uses a list of fixed length".into()),
        })
    }

    /// Returns the maximum ratio of the bytes that a value takes to the bytes that Wasmtime counts. Wasmtime counts
    /// only the length of the name of a flag, which matters for lists of flags.
    pub(super) fn amplification(&self, is_in_list: bool) -> usize {
        let part = |shape: &Self| shape.amplification(is_in_list);
        let parts = match self {
            Self::Flags(names) if is_in_list => {
                let shortest = names.iter().map(String::len).min().unwrap_or(0);
                let counted = size_of::<Val>() + names.len() * shortest;
                Some((counted + names.len() * FLAG).div_ceil(counted))
            }
            Self::List(item) => Some(item.amplification(true)),
            Self::Option(inner) => Some(part(inner)),
            Self::Record(fields) => fields.iter().map(|field| part(&field.shape)).max(),
            Self::Tuple(items) => items.iter().map(part).max(),
            Self::Variant(cases) => cases.iter().filter_map(|case| case.payload.as_ref()).map(part).max(),
            Self::Result { ok, error } => ok.iter().chain(error).map(|side| side.amplification(is_in_list)).max(),
            Self::Bool
            | Self::Integer(_)
            | Self::Float32
            | Self::Float64
            | Self::Char
            | Self::String
            | Self::Bytes
            | Self::Enum(_)
            | Self::Flags(_) => None,
        };
        parts.unwrap_or(1)
    }

    /// Returns true if `null` is one of its values.
    pub(super) fn is_nullable(&self) -> bool {
        matches!(self, Self::Option(_))
    }
}

impl Integer {
    /// Returns the smallest and the largest value.
    pub(super) fn range(self) -> (i128, i128) {
        match self {
            Self::S8 => (i8::MIN.into(), i8::MAX.into()),
            Self::U8 => (0, u8::MAX.into()),
            Self::S16 => (i16::MIN.into(), i16::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            Self::S32 => (i32::MIN.into(), i32::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::S64 => (i64::MIN.into(), i64::MAX.into()),
            Self::U64 => (0, u64::MAX.into()),
        }
    }
}
