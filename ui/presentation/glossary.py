"""The words of the app and what they mean, in one place for the Glossary page and for every tooltip."""

from __future__ import annotations

from dataclasses import dataclass

from ui.presentation.theme import strip_legend


@dataclass(frozen=True, slots=True)
class Term:
    """A word, one sentence that a tooltip can hold, and what more the Glossary says (may be empty)."""

    word: str
    short: str
    more: str = ""


SECTIONS: dict[str, tuple[Term, ...]] = {
    "The players": (
        Term(
            "Coordinator",
            "A small learned model that chooses, turn by turn, which model of the pool speaks next and "
            "in which role.",
            "It never answers a question itself. It reads the transcript so far through an encoder, "
            "and a linear "
            "head turns one hidden state into ten or so numbers: one logit per model, one per role.",
        ),
        Term(
            "Pool",
            "The language models that the coordinator can call, in a fixed order of slots.",
            "A slot keeps its colour and its letter (a, b, c, …) on every page.",
        ),
        Term(
            "Thinker",
            "The role that plans: it suggests how to solve the task, without giving an answer. Letter "
            "T, circle.",
        ),
        Term("Worker", "The role that solves: it writes an answer. Letter W, square."),
        Term(
            "Verifier",
            "The role that checks the latest answer and says ACCEPT or REVISE. Letter V, triangle.",
            "The first ACCEPT ends the episode. A verdict that cannot be read counts as REVISE and is "
            "flagged.",
        ),
        Term(
            "Policy",
            "Whatever makes the choices: an evolved checkpoint, one model alone, or chance.",
            "`single:NAME` is one model at the same turn budget, `random` draws model and role uniformly.",
        ),
        Term(
            "Alone",
            "“themis alone”: every turn by the model themis, no coordinator; the roles follow a fixed cycle.",
            "Written `single:themis`. It is what a coordinator has to beat.",
        ),
        Term(
            "Checkpoint",
            "One coordinator, frozen: its weights, its pool slots and the encoder it belongs to.",
        ),
    ),
    "An episode": (
        Term("Task", "One problem with an answer that can be checked."),
        Term(
            "Episode",
            "One task played by one policy, from the question to an accepted answer or to the end of "
            "the turn budget.",
        ),
        Term("Turn", "One step: the coordinator decides, one model replies in one role."),
        Term("Turn budget", "The most turns an episode may take."),
        Term(
            "Transcript", "The question and every reply so far: what the coordinator reads before it decides."
        ),
        Term(
            "Turn strip",
            "An episode at a glance: one cell per turn, colour for the model, letter for the role, a "
            "mark for the verdict.",
            "In tables it is text: `T·a W·c V·b✓` reads Thinker on model a, Worker on c, Verifier b accepts. "
            + strip_legend(),
        ),
        Term(
            "False accept",
            "An episode that a Verifier ended with ACCEPT although the answer is wrong.",
            "How many are many depends on what they are a share of: see Wrong among accepted, and Wrong answers "
            "accepted.",
        ),
        Term(
            "Wrong among accepted",
            "Of the episodes that a Verifier ended with ACCEPT, the share whose answer is wrong.",
            "It says how far an accepted answer of a policy can be trusted.",
        ),
        Term(
            "Wrong answers accepted",
            "Of the wrong answers that a Verifier judged with a readable verdict, the share it accepted.",
            "It says how far a verifier can be trusted, and is also called its false-accept rate. Its counterpart is "
            "the share of right answers that it sent back.",
        ),
        Term("Self-verified", "A Verifier turn in which a model judged its own answer."),
        Term(
            "Missing",
            "An episode that ended by a failure of network or provider. It counts neither as right nor "
            "as wrong.",
        ),
        Term("Override", "A decision that a person made in the coordinator's place during a live run."),
    ),
    "A decision": (
        Term(
            "Logit",
            "The head's raw score for one choice. Higher is likelier; only differences between logits "
            "matter.",
        ),
        Term(
            "Softmax",
            "Turns logits into probabilities that add up to one; the coordinator has one over models, "
            "one over roles.",
        ),
        Term(
            "Joint grid",
            "The probability of every (model, role) pair: the product of the two softmaxes.",
        ),
        Term(
            "Argmax and sampling",
            "Argmax takes the likeliest choice each time; sampling draws by probability, from a fixed seed.",
        ),
        Term(
            "Margin",
            "How far the best logit is ahead of the runner-up. Small margins are decisions that could "
            "have gone otherwise.",
        ),
        Term(
            "Entropy",
            "How undecided a choice was, in nats: 0 is certain, ln(3 × models) is a coin toss over all "
            "pairs.",
        ),
        Term(
            "Mask",
            "Models left out of the choice. Their logits are removed before the softmax, the rest "
            "share the probability.",
        ),
        Term(
            "Hidden state",
            "The encoder's vector at the penultimate token of the transcript: all that the head sees.",
        ),
        Term(
            "Head", "The linear layer that maps the hidden state to logits: the part that evolution changes."
        ),
        Term(
            "Head lens",
            "What each number of the hidden state gives to a logit: the head's weight times the number, an exact sum.",
            "It shows what put the choice ahead of the runner-up, and what changed in that since the turn before.",
        ),
        Term(
            "Tolerance",
            "The most that keeping a hidden state in half precision can have moved a logit.",
            "Every logit has its own, and where one is told for a whole head it is the largest. A lead is the "
            "difference of two logits, so the two tolerances add up; a choice whose lead is within that is too close "
            "to call and is never claimed.",
        ),
        Term(
            "SVF",
            "Singular value fine-tuning: scaling the singular values of a weight matrix, a few numbers "
            "per matrix.",
            "A checkpoint of kind `head+svf` changes the encoder a little as well as the head.",
        ),
    ),
    "A comparison": (
        Term(
            "Accuracy",
            "The share of finished episodes whose final answer is right.",
        ),
        Term(
            "Wilson interval",
            "A range that holds the true accuracy 95 times in 100, honest for small samples too.",
        ),
        Term(
            "Flip",
            "A task that one policy solves and the other does not.",
            "The 2×2 table counts both kinds of flip beside the tasks that both solve and that both fail.",
        ),
        Term(
            "Paired difference",
            "The difference in accuracy over the tasks that both played, so that easy and hard tasks "
            "cancel out.",
        ),
        Term(
            "Bootstrap interval",
            "A range for the paired difference, found by drawing the tasks again and again with replacement.",
        ),
        Term(
            "McNemar p",
            "How likely flips this uneven would be if both policies were equally good; exact, from the "
            "binomial.",
            "Below 0.05 chance alone is an unlikely explanation. It says nothing about how large the "
            "difference is.",
        ),
        Term(
            "Sign-flip p",
            "How often a difference this large comes up when, task by task, a coin decides which side is called A.",
            "It takes the place of the McNemar p where tasks were played several times: the episodes of one task "
            "stay together, so that repeats are no new evidence. With one episode per task both are the same test.",
        ),
        Term(
            "Fork",
            "A recorded episode played on from one of its turns with exactly one thing changed there.",
            "It is an episode of its own: the recorded one is only read, and its hash is shown before and after.",
        ),
        Term(
            "Baseline",
            "The same turn played again unchanged, as often as the forks: what chance alone does from there.",
            "The turn is asked again just as it was decided, then the policy goes on. Fork and baseline of one number "
            "share their seed, so they can be compared in pairs. Set against another policy, the baseline's own "
            "policy decides the turn anew.",
        ),
        Term(
            "Prefix hash",
            "A SHA-256 over the task and everything decided, sent and said in the turns a fork keeps.",
        ),
        Term(
            "Variation tree",
            "Episodes of one problem merged as long as they do the same: it shows where their courses part.",
        ),
        Term(
            "Seed",
            "A number that fixes every random choice: the same seed plays the same again.",
        ),
        Term(
            "Policy diff",
            "What several checkpoints would choose at the same recorded turns, without asking any model.",
            "Stored hidden states go through each checkpoint's head; where the encoder itself differs, it reads the "
            "recorded transcript again.",
        ),
        Term(
            "Agreement",
            "The share of turns at which two checkpoints would choose the same model in the same role, of those that "
            "can be told.",
        ),
        Term(
            "Too close to call",
            "A choice so narrow that the half precision of the stored hidden state could turn it. It counts neither "
            "as agreement nor as disagreement.",
        ),
        Term(
            "Teacher-forced",
            "Shown the transcript as it was recorded, whatever would have been chosen instead before.",
        ),
        Term(
            "First disagreement",
            "The first turn of an episode at which two checkpoints would choose otherwise: up to there both would have "
            "seen this very transcript.",
        ),
        Term(
            "Second opinion",
            "The logits of another checkpoint at a recorded turn, after its own encoder has read the transcript again.",
        ),
        Term(
            "Divergence",
            "The first turn at which two episodes of the same task differ in model or role.",
        ),
        Term(
            "KL divergence",
            "How far one choice's probabilities are from another's, in nats: 0 when they are the same. Always in one "
            "direction: D_KL(A ‖ B), or D_KL(recorded ‖ other).",
            "D_KL(A ‖ B) is how much more surprised B is, on average, by choices that A draws than A itself; it is "
            "infinite where B never chooses what A may. Taken the other way round it would be another number, which is "
            "shown nowhere. Model and role are drawn independently, so that of the joint choice is the sum of both.",
        ),
        Term(
            "Routing",
            "Which model is called in which role, and how often.",
        ),
        Term(
            "Regret",
            "How many more tasks a model alone, or the best of them task by task, solves than the policy.",
            "The best of them task by task is flattered by luck: with several models one is right by chance.",
        ),
        Term(
            "Frontier",
            "The policies that no other beats in both price and share solved.",
        ),
    ),
    "A review": (
        Term(
            "Label",
            "What a person says about an episode, a turn or some of its words: a name and a value, such as "
            "`quality: good`.",
            "Of one reviewer's labels under one name at one place the latest counts. None is ever changed: "
            "the earlier ones are the history.",
        ),
        Term("Queue", "The episodes of a list, to be read and labelled one after the other."),
        Term(
            "Blind review",
            "Labelling without seeing how an episode ended, what was expected, or what others said, until one "
            "has judged it.",
        ),
        Term(
            "Cohen's kappa",
            "How far two reviewers agree beyond chance: 1 is always, 0 is no more than chance would give.",
            "The interval is wide for few items. It cannot be told when both gave one value only.",
        ),
        Term(
            "Krippendorff's alpha",
            "The same for any number of reviewers, who need not have labelled the same items.",
        ),
    ),
    "Separability": (
        Term(
            "Separability",
            "How far apart classes of decisions lie, such as task families or chosen models, in the hidden "
            "states or in the logits.",
            "A head can only tell apart what lies apart in the hidden states.",
        ),
        Term(
            "Projection",
            "Many numbers per decision drawn as two, so that decisions become points of a picture.",
            "Every projection loses something: two classes that overlap in a picture may still lie apart.",
        ),
        Term(
            "PCA",
            "Principal component analysis: the two directions in which the points vary most. It sees no labels.",
        ),
        Term(
            "LDA",
            "Linear discriminant analysis: the two directions in which the classes lie furthest apart.",
            "It sees the labels, and with many numbers and few points it finds some distance in noise: "
            "compare its Fisher ratio with that of shuffled labels.",
        ),
        Term(
            "t-SNE",
            "A picture that keeps neighbours together. Sizes of groups, and distances between them, mean nothing.",
        ),
        Term(
            "Fisher ratio",
            "How far class means lie apart, over how far points lie from the mean of their own class: "
            "the larger, the clearer.",
            "Here in the plane of the two discriminants: the sums of squares between the classes over those "
            "within.",
        ),
        Term(
            "SVM",
            "Support vector machine: a classifier that draws the widest border between classes, here to see "
            "whether there is one.",
            "Linear borders are straight; RBF borders may bend.",
        ),
        Term(
            "Cross-validation",
            "Fitting on four fifths of the tasks and scoring on the fifth left over, five times.",
            "All turns of a task stay on one side. Otherwise a later turn would be recognised by an earlier one.",
        ),
        Term(
            "Majority class",
            "The accuracy of always naming the most frequent class: what a reading has to beat.",
        ),
    ),
    "Evolution": (
        Term(
            "Generation",
            "One round of evolution: candidates are drawn around the mean, played, ranked, and the "
            "mean moves.",
        ),
        Term("Candidate", "One vector of weights tried in a generation."),
        Term("Fitness", "The mean reward of a candidate over its episodes."),
        Term(
            "Separable CMA-ES",
            "The optimiser: it needs only rewards, no gradients, and adapts one step size per coordinate.",
        ),
        Term(
            "Learner",
            "What changes the head from generation to generation: separable CMA-ES, or REINFORCE or random "
            "search, which it is put beside.",
        ),
        Term("Sigma", "The optimiser's overall step size; it shrinks as the search settles."),
        Term(
            "Noise band",
            "How far chance alone moves a fitness: one standard error of so many tasks, each right or wrong.",
            "For a candidate that solves half of 8 tasks it is 18 points; the mean of a whole population is far surer.",
        ),
        Term(
            "Control",
            "What learned nothing, played on the same validation tasks: the optimiser's random walk, and the best "
            "single model.",
        ),
        Term(
            "Known reply",
            "A reply that another candidate of the same generation, or an earlier one, has already been given: "
            "it is not asked for again.",
        ),
        Term(
            "Selection entropy",
            "How mixed all choices of a population are, in nats: 0 when one model in one role takes every turn.",
        ),
        Term(
            "Pinned task",
            "A recorded episode whose turns every generation's head is shown again, without asking a model.",
            "Stored hidden states go through each generation's stored weights. States are kept in half precision, so "
            "choices that this could turn are not claimed.",
        ),
        Term(
            "Cosine",
            "How alike two rows of weights point: 1 the same way, 0 at right angles, −1 opposite ways.",
        ),
    ),
}

_BY_WORD = {term.word: term for terms in SECTIONS.values() for term in terms}


def define(word: str) -> str:
    """A term's one sentence, for a tooltip. KeyError for a word the glossary does not have."""
    return _BY_WORD[word].short


def explain(*words: str) -> str:
    """Several terms for one tooltip, each with its name, as markdown."""
    return "\n\n".join(f"**{word}**: {define(word)}" for word in words)
