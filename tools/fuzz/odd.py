"""Values and names that programs stumble over, as they are written in Python."""

from __future__ import annotations

from random import Random


def words(text: str) -> list[str]:
    """What semicolons separate."""
    return [word.strip() for word in text.replace("\n", " ").split(";")]


VALUES = words(
    """
np.nan; None; pd.NA; pd.NaT; np.inf; -np.inf; 0; -0.0; 1; -1; 1e308; -1e308; 5e-324; 1e-300; 1e75;
1e160; 1e-75; 2**53 + 1; 2**63; 10**30; -(2**63); True; False; 'a'; ''; ' '; 'nan'; 'NA'; '10';
'1,5'; '1e5'; '007'; 'inf'; '2024-13-01'; '2024-01-31'; '\\x00'; '\\ud800'; 'é'; 'x' * 5000; b'x';
1j; Decimal('1.5'); Decimal('NaN'); Decimal('1e400'); Fraction(1, 3); [1, 2]; (1, 2); {'a': 1};
set(); object(); float; np.float32(1.1); np.float16(7); np.int8(-128); np.uint64(2**64 - 1);
np.bool_(True); np.str_('q'); np.array([1.0]);
np.array([]); pd.Timestamp('2024-03-31 02:30', tz='UTC'); pd.Timestamp('1677-09-22');
datetime.date(2024, 1, 1); datetime.date(9999, 12, 31);
datetime.datetime(1, 1, 1); datetime.time(1); datetime.timedelta(1); np.datetime64('NaT');
np.datetime64('2024-01-01T00:00:00.000000001'); pd.Timedelta(1); pd.Interval(0, 1);
pd.Period('2024-01'); range(3); lambda: 0; ...; Exception('x')
"""
)

DTYPES = words(
    """
float32; float16; float64; longdouble; int8; int32; uint8; uint64; Int64; UInt8; Float32; boolean;
bool; string; category; object; complex128; str; datetime64[ns]; datetime64[s]; datetime64[ns, UTC];
timedelta64[ns]; string[pyarrow]; int64[pyarrow]; double[pyarrow]; float[pyarrow]; bool[pyarrow];
timestamp[us][pyarrow]; date32[day][pyarrow]; decimal128(20, 3)[pyarrow]; null[pyarrow];
dictionary<values=string, indices=int32>[pyarrow]; Sparse[float]; period[D]; S4; U3; interval
"""
)

NAMES = words(
    """
''; ' '; 'a b'; 'é'; '`'; 'I'; 'C'; 'lag'; '1'; 1; 1.5; None; np.nan; True; ('a', 'b'); b'x';
pd.Timestamp('2024'); 'y'; 'id'; 'x:z'; 'log(x)'; 'Intercept'; '_0'; 'state'; 'subject'; 'index';
'level_0'; 'ζ'; 'x' * 3000; '\\n'; '\\x00'; '\\ud800'; 'time '; 'Time'; 'if'; 'probability'; 'a[b]';
'{x}'; '%s'; '{0}'; '$x$'; '<b>'; 'fit.json'; '../x'; 'CON'
"""
)


def value(rng: Random) -> str:
    """One of them."""
    return rng.choice(VALUES)


def number(rng: Random) -> str:
    """A number that is near a limit, or plain."""
    plain = [repr(rng.randint(-5, 5)), repr(round(rng.gauss(0, 3), 2))]
    return rng.choice(
        [*plain, f"{rng.choice('12-')}e{rng.randint(-320, 308)}".replace("-e", "-1e")]
    )


def places(rng: Random, most: int = 40) -> str:
    """A few rows, by number."""
    return repr(sorted(rng.sample(range(most), rng.choice([1, 2, 5, 20]))))
