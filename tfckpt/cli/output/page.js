const field = document.getElementById("find"), found = document.getElementById("found");
if (field) {
  const values = [...document.querySelectorAll(".value")];
  const branches = [...document.querySelectorAll(".tree details")];
  const before = branches.map((one) => one.open);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const value of values) {
      const text = value.dataset.find;
      value.hidden = !words.every((word) => text.includes(word));
      value.style.display = value.hidden ? "none" : "";
      count += !value.hidden;
    }
    branches.forEach((one, index) => {
      const some = [...one.querySelectorAll(".value")].some((value) => !value.hidden);
      one.parentElement.style.display = some ? "" : "none";
      one.open = words.length ? some : before[index];
    });
    found.textContent = words.length ? `${count} of ${values.length}` : "";
  });
}
