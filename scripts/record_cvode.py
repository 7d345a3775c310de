#!/usr/bin/env python3
"""Records the stiff problems' ends by CVODE, for tests/parity/ode_test.cpp.

Writes tests/parity/data/cvode.json: of each problem of record_scipy_ode.py the state at its end and at the end of the interval of the
Test Set for Initial Value Problem Solvers (Mazzia and Magherini, release 2.4, 2008), by CVODE's BDF with a relative tolerance of 1e-12;
how far CVODE is from itself at 1e-11; and the solution that the Test Set publishes. Needs scikit-sundae, which brings SUNDIALS, and scipy,
whose script has the formulas; versions are written into the file.

usage: scripts/record_cvode.py [folder]     (default tests/parity/data)
"""
import json
import pathlib
import sys

import numpy as np
import sksundae
from record_scipy_ode import STIFF
from sksundae.cvode import CVODE

# Figures of the Test Set: the end of the interval, and the solution there. Its Van der Pol problem has time divided by 1000.
PUBLISHED = {
    "robertson": (1e11, [0.2083340149701255e-07, 0.8333360770334713e-13, 0.9999999791665050]),
    "van_der_pol_1000": (2000.0, [0.1706167732170483e1, -0.8928097010247975e-3]),
    "hires": (321.8122, [0.7371312573325668e-3, 0.1442485726316185e-3, 0.5888729740967575e-4, 0.1175651343283149e-2,
                         0.2386356198831331e-2, 0.6238968252742796e-2, 0.2849998395185769e-2, 0.2850001604814231e-2]),
    "orego": (360.0, [0.1000814870318523e1, 0.1228178521549917e4, 0.1320554942846706e3]),
    "pollution": (60.0, [
        0.5646255480022769e-1, 0.1342484130422339, 0.4139734331099427e-8, 0.5523140207484359e-2, 0.2018977262302196e-6,
        0.1464541863493966e-6, 0.7784249118997964e-1, 0.3245075353396018, 0.7494013383880406e-2, 0.1622293157301561e-7,
        0.1135863833257075e-7, 0.2230505975721359e-2, 0.2087162882798630e-3, 0.1396921016840158e-4, 0.8964884856898295e-2,
        0.4352846369330103e-17, 0.6899219696263405e-2, 0.1007803037365946e-3, 0.1772146513969984e-5, 0.5682943292316392e-4]),
}


def far(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return float(np.max(np.abs(a - b) / (np.abs(b) + 1e-12)))


def end(field, y0, t1, rtol):
    def rates(t, y, dy):
        dy[:] = field(t, y)

    solution = CVODE(rates, method="BDF", rtol=rtol, atol=1e-6 * rtol, max_num_steps=10**7).solve([0.0, t1], np.array(y0, float))
    assert solution.success
    return solution.y[-1]


def record(name):
    field, t1, y0 = STIFF[name]
    test_set_t1, published = PUBLISHED[name]
    y1, test_set_y1 = end(field, y0, t1, 1e-12), end(field, y0, test_set_t1, 1e-12)
    return {"problem": name, "y0": list(map(float, y0)), "t1": t1, "y1": y1.tolist(), "uncertain": far(end(field, y0, t1, 1e-11), y1),
            "test_set": {"t1": test_set_t1, "y1": published, "cvode": far(test_set_y1, published)}}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/parity/data")
    cases = [record(name) for name in STIFF]
    for case in cases:
        print(case["problem"], "CVODE is uncertain by", case["uncertain"], "and off the published solution by", case["test_set"]["cvode"])
    versions = {"sundials": sksundae.SUNDIALS_VERSION, "scikit-sundae": sksundae.__version__}
    (folder / "cvode.json").write_text(json.dumps({"versions": versions, "stiff": cases}) + "\n")


main()
