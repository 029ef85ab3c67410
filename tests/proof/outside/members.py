"""All members and replicas of a team add up the parameters that they have whole in one order.

Repeats the serial walk with sums that know the order of their additions. A sum is ("sum", ((at, set, key), 1)), where
key numbers a contribution, or an unordered pair of keys. An update must take the keys that all other updates of the
team's stage take at the same place.
"""

from fractions import Fraction

from values import Values


class Orders(Values):
    def __init__(self, p):
        super().__init__(p)
        self.keys, self.taken, self.why = {}, {}, []

    def key(self, of):
        """of: (at, set, key), or (at, set, stage, microbatch) for one contribution."""
        if len(of) != 4:
            return of[2] if len(of) == 3 else -1
        return self.keys.setdefault((self.p.teams.member[of[2]][0], of[3], "job") if of[2] >= 0 else None, len(self.keys))

    def plus(self, a, b):
        given = [value[1][0] for value in (a, b) if value and value[0] == "sum" and len(value) > 1]
        if len(given) < 2:
            return ("sum", *(((of[0], of[1], self.key(of)), 1) for of in given))
        pair = tuple(sorted(self.key(of) for of in given))
        at = given[0][0]
        return ("sum", ((at, given[0][1], self.keys.setdefault((pair, given[1][0] - at), len(self.keys))), 1))

    def update(self, x):
        teams, dw = self.p.teams, self.operand(x, "dw")
        if dw and x.s < self.p.stages and self.bytes(x, dw[0]) and teams.whole[teams.member[x.s][0]]:
            taken = self.taken.setdefault((teams.first_of(x.s), x.b or 0), [])
            for y, z, value in self.read(x, dw[0]):
                if value and value[0] == "sum" and len(value) > 1:
                    of = value[1][0]
                    begin, end, key = y + of[0], z + of[0], self.key(of)
                    if any(max(begin, b) < min(end, e) and key != k for b, e, k in taken):
                        self.why.append(f"{x}: its gradient is added up in another order than that of another member")
                    taken.append((begin, end, key))
        super().update(x)


def disorder(p, steps):
    """Reports wrong orders of sums in a program whose values are right."""
    if p.teams is None or not any(p.teams.whole):
        return []
    wrong, strict = p.wrong, p.strict
    p.wrong, p.strict = [], []  # Values calls sums in another form than its own wrong
    orders = Orders(p)
    orders.run(steps)
    p.wrong, p.strict = wrong, strict
    return orders.why
